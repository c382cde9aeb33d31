/* Output of kernels, which the device keeps until the host calls xpu_kernel_debug. The host's own printf in the same
 * file is unaffected. */
#ifndef XPU_KERNEL_XTDK_IO_H
#define XPU_KERNEL_XTDK_IO_H
#include <cstdarg>
#include <cstdio>

#include "../../xpusim/not_modelled.h"
#include "xtdk.h"

XPUSIM_RUNTIME __attribute__((format(printf, 1, 2))) int xpusim_printf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = xpusim_current != nullptr ? xpusim_print(format, arguments) : std::vprintf(format, arguments);
    va_end(arguments);
    return n;
}
namespace std
{
using ::xpusim_printf;
}
#define printf(...) xpusim_printf(__VA_ARGS__)

#ifdef __arch_xpu2__
enum class DumpFormat { HHX };

/* Print bytes in hexadecimal, 16 in a line after their address. A card's layout of the lines is not public. */
XPUSIM_RUNTIME int memdump(unsigned bytes, const void *from, DumpFormat = DumpFormat::HHX)
{
    const auto *p = static_cast<const unsigned char *>(from);
    for (unsigned at = 0; at < bytes; at += 16) {
        char line[64];
        int n = 0;
        for (unsigned i = at; i < at + 16 && i < bytes; i++)
            n += std::snprintf(line + n, sizeof line - static_cast<size_t>(n), " %02x", p[i]);
        xpusim_printf("%p:%s\n", static_cast<const void *>(p + at), line);
    }
    return 0;
}
#else
XPUSIM_NOT_MODELLED(memdump, "public headers have it for KL2 only; use printf, or compile with -D__arch_xpu2__")
#endif
#endif
