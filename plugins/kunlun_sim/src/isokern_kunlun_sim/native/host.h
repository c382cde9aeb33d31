/* What the host wrappers of the kernels share: their prototype, streams, and the number of clusters. */
#ifndef IK_HOST_H
#define IK_HOST_H
#include <mutex>

#include "xpu/runtime.h"

#ifndef IK_LEVEL
#define IK_LEVEL xpu
#endif
#include "isokern.h"
#include "isokern_native.h"

/* Every float that is computed in F32 and is not F32: its code, its name in the functions that convert it, and its type
 * in memory. */
#define IK_SMALL_FLOATS(X) \
    X(IK_F16, f16, unsigned short) \
    X(IK_BF16, bf16, unsigned short) X(IK_F8E4M3FN, f8e4m3fn, unsigned char) X(IK_F8E5M2, f8e5m2, unsigned char)

/* In device memory: the first bad value that a kernel of this stream met; kind is 0 if there was none. */
struct ik_device_error {
    long long kind; /* of the operator */
    long long at, value;
};

struct ik_xpu_stream {
    XPUStream xpu;
    int device;
    std::mutex mutex; /* of the members below, and of launches of kernels that can set *error */
    bool may_fail;    /* such a kernel was launched since *error was read */
    ik_device_error *error;
};

/* Return a runtime's code as a status, and set the text for ik_last_error(). */
extern "C" ik_status ik_xpu_status(int code);
extern "C" ik_status ik_stream_synchronize(void *stream);

/* Return the stream of a call, and make its device the thread's current one; return the clusters of its device. */
static inline ik_xpu_stream *ik_stream_of(void *stream)
{
    auto *s = static_cast<ik_xpu_stream *>(stream);
    xpu_set_device(s->device);
    return s;
}

static inline int ik_clusters(const ik_xpu_stream *s)
{
    uint64_t count = 1;
    xpu_device_get_attr(&count, XPUATTR_NUM_CLUSTER, s->device);
    return static_cast<int>(count);
}
#endif
