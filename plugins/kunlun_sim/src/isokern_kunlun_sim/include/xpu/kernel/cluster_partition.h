/* XDNN's header: the shares of threads in a range or a matrix. */
#ifndef XPU_KERNEL_CLUSTER_PARTITION_H
#define XPU_KERNEL_CLUSTER_PARTITION_H
#include "cluster.h"
#include "xtdk.h"

/* Compute thread `tid`'s share [*start, *end) of `len` elements: whole units of `align` except for the last, as even as
 * possible, with the longer shares first. */
template <class N>
XPUSIM_RUNTIME void partition(int tid, int nthreads, N len, int align, N *start, N *end)
{
    const N units = (len + align - 1) / align, each = units / nthreads, longer = units % nthreads;
    const N before = each * tid + (tid < longer ? tid : longer), first = before * align,
            last = (before + each + (tid < longer ? 1 : 0)) * align;
    *start = first < len ? first : len;
    *end = last < len ? last : len;
}

/* Compute thread `tid`'s rows [*mstart, *mend) and columns [*nstart, *nend) of an m x n matrix. One row is shared in
 * units of 16. With 8 rows a thread or more, threads share whole rows. Otherwise a thread has a tile. Of the heights
 * between its share of the rows and 8, it is the one with the lowest of XDNN's scores (cluster_partition.h): a product
 * of how even the tiles are, a factor for rows shorter than a burst of `dmaburst`, and one for what is read again. */
template <class N>
XPUSIM_RUNTIME void partition2d(int tid, int nthreads, N m, N n, N *mstart, N *mend, N *nstart, N *nend,
    float reuse_factor = 0.0f, float dmaburst = 512.0f)
{
    if (m == 1) {
        *mstart = 0, *mend = 1;
        partition(tid, nthreads, n, 16, nstart, nend);
        return;
    }
    partition(tid, nthreads, m, 1, mstart, mend);
    *nstart = 0, *nend = n;
    const auto parts = [](N a, N b) { return (a + b - 1) / b; };
    const N min_height = parts(m, nthreads), max_height = m < 8 ? m : 8;
    if (min_height >= max_height)
        return;
    const auto score = [=](N height) {
        const N width = parts(n, nthreads / parts(m, height));
        const float rows = static_cast<float>(height), columns = static_cast<float>(width);
        const float even =
            static_cast<float>(height * width) * static_cast<float>(nthreads) / static_cast<float>(m * n);
        const float burst = dmaburst / (columns < dmaburst ? columns : dmaburst);
        return even * burst * ((rows + reuse_factor) / (rows * (1.0f + reuse_factor)));
    };
    N height = min_height;
    for (N other = min_height + 1; other <= max_height; other++)
        if (score(other) < score(height))
            height = other;
    const N across = nthreads / parts(m, height), width = parts(n, across);
    const N row = tid / across * height, column = tid % across * width;
    const bool idle = tid >= parts(m, height) * across;
    const auto within = [](N at, N size) { return at < size ? at : size; };
    *mstart = idle ? m : within(row, m);
    *mend = idle ? m : within(row + height, m);
    *nstart = idle ? n : within(column, n);
    *nend = idle ? n : within(column + width, n);
}
#endif
