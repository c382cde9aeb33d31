/* The host's library of operators, of which only the name of its context is here, so that code that passes one along
 * compiles. Such code relies on std::function, which the library's own headers include (InfiniCore, kunlun_handle.h).
 */
#ifndef XPU_XDNN_H
#define XPU_XDNN_H
#include <functional>
namespace baidu::xpu::api
{
class Context;
}
#endif
