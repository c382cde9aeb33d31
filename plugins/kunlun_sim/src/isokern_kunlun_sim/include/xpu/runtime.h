/* The host interface of the Kunlun runtime, as far as it is public: names, numbers and error codes of XRE 4, and the
 * additions of XRE 5.
 *
 * For building against the emulator; with the vendor's XRE installed, its own header is used instead. */
#ifndef XPU_RUNTIME_H
#define XPU_RUNTIME_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#define XPU_DEFAULT(value) = value
#else
#define XPU_DEFAULT(value)
#endif

typedef void *XPUStream;
typedef void *XPUEvent;
typedef void *XPUFunc;

typedef enum XPUMemoryKind {
    XPU_MEM_MAIN = 0,
    XPU_MEM_HBM = 0,
    XPU_MEM_L3 = 1,
    XPU_MEM_MMAPPABLE = 16,
    XPU_MEM_MAIN_KL2_HUGE = 17
} XPUMemoryKind;
typedef enum XPUMemcpyKind { XPU_DEVICE_TO_HOST = 0, XPU_HOST_TO_DEVICE = 1, XPU_DEVICE_TO_DEVICE = 2 } XPUMemcpyKind;

typedef enum XPUDeviceAttr {
    XPUATTR_PCI_ADDRESS = 0,
    XPUATTR_DEVID,
    XPUATTR_BOARDID,
    XPUATTR_ONBOARDID,
    XPUATTR_MODEL,
    XPUATTR_MEM_MAIN_CAPACITY,
    XPUATTR_MEM_L3_CAPACITY,
    XPUATTR_NUM_CLUSTER,
    XPUATTR_NUM_SDNN,
    XPUATTR_NUM_DMACH,
    XPUATTR_NUM_HWQ,
    XPUATTR_NUM_ENC,
    XPUATTR_NUM_DEC,
    XPUATTR_NUM_IMGPROC
} XPUDeviceAttr;

/* The driver's errors are negative; xpu_strerror accepts either sign. */
typedef enum XPUError {
    XPU_SUCCESS = 0,
    XPUERR_INVALID_DEVICE = 701,
    XPUERR_UNINIT = 702,
    XPUERR_NODEVICE = 703,
    XPUERR_VERSION = 704,
    XPUERR_NOMEM = 705,
    XPUERR_NOCPUMEM = 706,
    XPUERR_INVALID_PARAM = 707,
    XPUERR_NOFUNC = 708,
    XPUERR_DLOPEN = 709,
    XPUERR_DLSYM = 710,
    XPUERR_SIMULATOR = 711,
    XPUERR_UNSUPPORTED = 712,
    XPUERR_ABNORMAL = 713,
    XPUERR_KEXCEPTION = 714,
    XPUERR_TIMEOUT = 715,
    XPUERR_BUSY = 716,
    XPUERR_USEAFTERCLOSE = 717,
    XPUERR_UCECC = 718,
    XPUERR_OVERHEAT = 719,
    XPUERR_EVENT_WAIT = 720,
    XPUERR_UNEXPECT = 800,
    XPUERR_RESET = 801,
    XPUERR_HWEXCEPTION = 802,
    XPUERR_HOST_MEM_REGISTERED = 816
} XPUError;

typedef struct XPUPointerAttributes {
    XPUMemoryKind type; /* of device memory */
    int device;         /* -1: not memory of a device */
    void *device_pointer, *host_pointer;
} XPUPointerAttributes;

int xpu_device_count(int *count);
int xpu_set_device(int devid);
int xpu_current_device(int *devid);
int xpu_device_get_attr(uint64_t *value, XPUDeviceAttr attr, int devid);

int xpu_malloc(void **device_pointer, uint64_t bytes, XPUMemoryKind kind XPU_DEFAULT(XPU_MEM_MAIN));
int xpu_free(void *device_pointer);
int xpu_host_alloc(void **host_pointer, uint64_t bytes, unsigned flags XPU_DEFAULT(0));
int xpu_host_free(void *host_pointer);
int xpu_host_register(void *host_pointer, uint64_t bytes, unsigned flags);
int xpu_host_unregister(void *host_pointer);
int xpu_memcpy(void *to, const void *from, uint64_t bytes, XPUMemcpyKind kind);
int xpu_memcpy_async(void *to, const void *from, uint64_t bytes, XPUMemcpyKind kind, XPUStream stream);
int xpu_memcpy_peer(int to_device, void *to, int from_device, const void *from, uint64_t bytes);
int xpu_pointer_get_attrs(XPUPointerAttributes *attributes, const void *pointer);

int xpu_stream_create(XPUStream *stream);
int xpu_stream_destroy(XPUStream stream);
int xpu_stream_wait_event(XPUStream stream, XPUEvent event);
int xpu_event_create(XPUEvent *event);
int xpu_event_record(XPUEvent event, XPUStream stream XPU_DEFAULT(0));
int xpu_event_wait(XPUEvent event);
int xpu_event_query(XPUEvent event); /* XPU_SUCCESS or XPUERR_BUSY */
int xpu_event_destroy(XPUEvent event);
int xpu_wait(XPUStream stream XPU_DEFAULT(0));

int xpu_launch_config(int nclusters, int ncores, XPUStream stream XPU_DEFAULT(0));
int xpu_launch_argument_set(const void *argument, size_t size, size_t offset);
int xpu_launch_async(XPUFunc function);
int xpu_kernel_debug(XPUStream stream);
int xpu_kernel_debug_reset(void);

int xpu_get_runtime_version(uint32_t *major, uint32_t *minor);
int xpu_get_driver_version(uint32_t *major, uint32_t *minor);
const char *xpu_strerror(int error);

/* Names that no header of XRE 4 or 5 has, although code and texts about Kunlun use them. They are defined here by the
 * real names, so that code built with this header needs no library for them; for a build with the vendor's header, use
 * the real names. */

typedef XPUStream kunlunStream_t; /* InfiniCore's names of the vendor's types */
typedef XPUEvent kunlunEvent_t;

/* As xpu_wait: the host waits until the stream's work is done. */
static inline int xpu_stream_synchronize(XPUStream stream) { return xpu_wait(stream); }

#ifdef __cplusplus
}

/* Accept a pointer to a pointer of any type: the vendor's function takes a void **, to which C++ converts no other
 * pointer by itself. */
template <class T>
inline int xpu_malloc(T **device_pointer, uint64_t bytes, XPUMemoryKind kind = XPU_MEM_MAIN)
{ return xpu_malloc(reinterpret_cast<void **>(device_pointer), bytes, kind); }
template <class T>
inline int xpu_host_alloc(T **host_pointer, uint64_t bytes, unsigned flags = 0)
{ return xpu_host_alloc(reinterpret_cast<void **>(host_pointer), bytes, flags); }
#endif
#endif
