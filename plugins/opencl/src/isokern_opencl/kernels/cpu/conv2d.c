/* conv2d on processors: filters times strips of pixels, in register tiles (contraction.h).
 *
 * x is copied to planes with the padding around it, so that a strip of pixels is one run at every tap's offset, over the ends of rows: with
 * strides of (sh, sw), plane (u, v) holds the rows u, u + sh, … and columns v, v + sw, … of it. Pixels beyond the end of a row of y are made and
 * dropped. Windows of one element find all this in x itself. Filters are read where they lie if their taps are contiguous, and copied else.
 */
/* launch
 * let(size=8 if y.dtype.itemsize == 8 else 4, plain=y.dtype.itemsize == size)
 * let(images=x.shape[0], kh=w.shape[2], kw=w.shape[3], oh=y.shape[2], ow=y.shape[3], rows=w.shape[0] // attrs.groups, k=w.shape[1] * kh * kw)
 * let(sh=attrs.stride[0], sw=attrs.stride[-1], down=attrs.dilation[0] * (kh - 1), right=attrs.dilation[-1] * (kw - 1))
 * let(lies=plain and kh * kw * sh * sw == 1 and not any(attrs.padding) and x.strides[3] == 1 and x.strides[2] == ow and oh * ow * size >= 128)
 * let(lies=lies or k == 0)
 * let(taps_lie=plain and (kw == 1 or w.strides[3] == 1) and (kh == 1 or w.strides[2] == kw) and (w.shape[1] == 1 or w.strides[1] == kh * kw))
 * let(taps_lie=taps_lie or k == 0)
 * let(sides=min(sh, down + 1) * min(sw, right + 1), high=oh + down // sh, wide=ow if lies else ow + right // sw)
 * let(strips=ceil_div(oh * wide * size, 128), wanted=ceil_div(4 * device.units, max(1, images * attrs.groups * strips)))
 * let(block=min(64, 8 * ceil_div(max(1, rows), 8 * max(1, wanted, ceil_div(rows, 64)))))
 * let(tap_bytes=0 if lies else 8 * k, plane_bytes=0 if lies else x.shape[0] * x.shape[1] * sides * high * wide * size + 128)
 * let(w_at=ceil_div(tap_bytes + plane_bytes, 128) * 128)
 * workspace(bytes=w_at + (0 if taps_lie else w.numel * size))
 * refuse(when=plane_bytes > 1 << 31, reason="planes of more than 2 GiB")
 * conv2d_taps(when=not lies, items=k, high=high, wide=wide)
 * conv2d_planes(when=not lies, groups=x.shape[0] * x.shape[1] * sides, local=1, high=high, wide=wide, tap_bytes=tap_bytes)
 * conv2d_filters(when=not taps_lie, groups=w.shape[0], local=1, w_at=w_at)
 * conv2d(groups=images * attrs.groups * ceil_div(rows, block) * strips, local=1, LIES=lies + 0, TAPS_LIE=taps_lie + 0, rows=rows, k=k, block=block, strips=strips, high=high, wide=wide, sides=sides, tap_bytes=tap_bytes, w_at=w_at)
 */
#include "contraction.h"

/* The window's height and width, stride, and dilation. */
typedef struct window {
    ik_index kh, kw, sh, sw, dh, dw;
} window;

#define FIRST(list) (ik_index)(list).v[0]
#define LAST(list) (ik_index)(list).v[(list).count - 1]
#define WINDOW {p.w.shape[2], p.w.shape[3], FIRST(p.attr_stride), LAST(p.attr_stride), FIRST(p.attr_dilation), LAST(p.attr_dilation)}

/* Planes of one channel by row, and by column. */
static IK_INLINE ik_index planes_down(window g) { return min(g.sh, g.dh * (g.kh - 1) + 1); }
static IK_INLINE ik_index planes_right(window g) { return min(g.sw, g.dw * (g.kw - 1) + 1); }

/* Where each tap meets the first pixel, from the planes of the group's first channel on. */
IK_ENTRY(conv2d_taps)(IK_PARAMS)
{
    const window g = WINDOW;
    const ik_index tap = IK_ITEM, kx = tap % g.kw * g.dw, ky = tap / g.kw % g.kh * g.dh, channel = tap / g.kw / g.kh;
    if (tap < p.items) {
        const ik_index plane = (channel * planes_down(g) + ky % g.sh) * planes_right(g) + kx % g.sw;
        ((IK_GLOBAL ik_index *)workspace)[tap] = (plane * p.high + ky / g.sh) * p.wide + kx / g.sw;
    }
}

/* An item makes one plane. */
IK_ENTRY(conv2d_planes)(IK_PARAMS)
{
    const window g = WINDOW;
    const ik_index across = planes_right(g), along = planes_down(g), item = IK_GROUP_ID, channel = item / across / along;
    const ik_index image = channel / p.x.shape[1], left = item % across - p.attr_padding.v[p.attr_padding.count == 1 ? 0 : 1], top = item / across % along - p.attr_padding.v[0];
    const ik_index from = p.x.offset + image * p.x.strides[0] + channel % p.x.shape[1] * p.x.strides[1], step = g.sw * p.x.strides[3];
    const ik_index low = min((ik_index)p.wide, left < 0 ? (-left + g.sw - 1) / g.sw : 0);
    const ik_index high = left < p.x.shape[3] ? max(low, min((ik_index)p.wide, (p.x.shape[3] - 1 - left) / g.sw + 1)) : low;
    IK_GLOBAL value *to = (IK_GLOBAL value *)(workspace + p.tap_bytes) + item * p.high * p.wide;
    for (ik_index row = 0; row < p.high; row++, to += p.wide) {
        const ik_index at = top + row * g.sh, inside = at >= 0 && at < p.x.shape[2], begin = inside ? low : (ik_index)p.wide, end = inside ? high : begin;
        for (ik_index i = 0; i < begin; i++)
            to[i] = 0;
        IK_GLOBAL const element *line = x + from + at * p.x.strides[2] + left * p.x.strides[3];
        if (step == 1)
            for (ik_index i = begin; i < end; i++)
                to[i] = LOAD(line, i);
        else
            for (ik_index i = begin; i < end; i++)
                to[i] = LOAD(line, i * step);
        for (ik_index i = end; i < p.wide; i++)
            to[i] = 0;
    }
}

/* An item copies one filter. */
IK_ENTRY(conv2d_filters)(IK_PARAMS)
{
    const ik_index channels = p.w.shape[1], kh = p.w.shape[2], kw = p.w.shape[3], from = p.w.offset + IK_GROUP_ID * p.w.strides[0];
    IK_GLOBAL value *to = (IK_GLOBAL value *)(workspace + p.w_at) + IK_GROUP_ID * channels * kh * kw;
    for (ik_index c = 0; c < channels; c++)
        for (ik_index ky = 0; ky < kh; ky++, to += kw)
            for (ik_index kx = 0; kx < kw; kx++)
                to[kx] = LOAD(w, from + c * p.w.strides[1] + ky * p.w.strides[2] + kx * p.w.strides[3]);
}

IK_ENTRY(conv2d)(IK_PARAMS)
{
    vector room[SUMS];
    value *sums = (value *)room;
    const ik_index blocks = (p.rows + p.block - 1) / p.block, item = IK_GROUP_ID, strip = item % p.strips, row0 = item / p.strips % blocks * p.block;
    const ik_index groups = p.w.shape[0] / max((ik_index)1, (ik_index)p.rows), plane = item / p.strips / blocks, group = plane % groups, image = plane / groups;
    const ik_index channels = p.w.shape[1], filter = group * p.rows + row0, pixels = p.y.shape[2] * p.wide;
    const int rows = (int)min((ik_index)p.block, (ik_index)p.rows - row0);
#if TAPS_LIE
    IK_GLOBAL const value *filters = (IK_GLOBAL const value *)w + p.w.offset + filter * p.w.strides[0];
    const ik_index filter_step = p.w.strides[0];
#else
    IK_GLOBAL const value *filters = (IK_GLOBAL const value *)(workspace + p.w_at) + filter * p.k;
    const ik_index filter_step = p.k;
#endif
#if LIES
    const ik_index first = max((ik_index)0, min(strip * STRIP, pixels - STRIP)); /* the last strip ends with the channel, and has pixels of the one before */
    IK_GLOBAL const value *from = (IK_GLOBAL const value *)x + p.x.offset + image * p.x.strides[0] + group * channels * p.x.strides[1] + first;
    contract(filters, filter_step, rows, from, p.x.strides[1], 0, p.k, sums);
#else
    const ik_index first = strip * STRIP;
    IK_GLOBAL const value *from = (IK_GLOBAL const value *)(workspace + p.tap_bytes) + plane * channels * p.sides * p.high * p.wide + first;
    contract(filters, filter_step, rows, from, 0, (IK_GLOBAL const ik_index *)workspace, p.k, sums);
#endif
#ifdef IK_HAS_bias
    for (int i = 0; i < rows; i++) {
        const value more = LOAD(bias, p.bias.offset + (filter + i) * p.bias.strides[0]);
        for (int j = 0; j < STRIP; j++)
            sums[i * STRIP + j] += more;
    }
#endif
    const int end = (int)min((ik_index)STRIP, pixels - first);
    const ik_index to = p.y.offset + image * p.y.strides[0] + filter * p.y.strides[1];
    for (int j = (int)(strip * STRIP - first); j < end;) { /* one row of y at a time */
        const ik_index at = first + j, row = at / p.wide, col = at % p.wide;
        const int run = (int)min((ik_index)(end - j), (ik_index)p.wide - col), count = (int)min((ik_index)run, max((ik_index)0, p.y.shape[3] - col));
        for (int i = 0; i < rows; i++) {
            const ik_index place = to + i * p.y.strides[1] + row * p.y.strides[2] + col * p.y.strides[3];
            const value *line = sums + i * STRIP + j;
            if (p.y.strides[3] == 1)
                for (int v = 0; v < count; v++)
                    IK_STORE(y, place + v, line[v]);
            else
                for (int v = 0; v < count; v++)
                    IK_STORE(y, place + v * p.y.strides[3], line[v]);
        }
        j += run;
    }
}
