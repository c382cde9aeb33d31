/* A loop nest as cores walk it: tiles of terms of several outputs, fetched from strided tensors, and a body's program
 * that runs over them.
 *
 * The outputs' loops come first, then the reduced ones. A tile has lines of elements. If the job goes `across`, a line
 * holds neighbouring outputs and the lines are terms; otherwise a line holds neighbouring terms and the lines are
 * outputs. The host derives the rest from the tensors and the program (nest_plan.h) and passes it as the job's text:
 * sizes, strides and instructions. */
#ifndef IK_XPU_NEST_H
#define IK_XPU_NEST_H
#include "kernel.h"

enum {
    IK_NEST_TENSORS = 2 + IK_PROGRAM_INPUTS, /* y, init, inputs */
    IK_NEST_DIMS = IK_MAX_RANK + 1, /* one more loop where there are no reduced loops, or no outputs' loops */
    IK_NEST_WORDS = 128, /* words of a program */
    IK_NEST_TEXT = IK_NEST_DIMS * (1 + IK_NEST_TENSORS) + IK_NEST_WORDS,
    IK_NEST_OUTS = 64, /* outputs that are summed at a time */
    IK_NEST_SUM_BYTES = 16 * IK_NEST_OUTS,
    IK_NEST_BLOCK = 8, /* terms of an output that are added plainly before their sum is added without loss */
    IK_SLOT_BYTES = IK_LM_BYTES - IK_NEST_SUM_BYTES,
};

/* Along a tensor's dims of one kind: dense in the order of the linear index, or a single element. */
enum { IK_OUTS_DENSE = 1, IK_OUTS_STILL = 2, IK_TERMS_DENSE = 4, IK_TERMS_STILL = 8 };

struct ik_job {
    long long total, length, part; /* outputs, terms of each, terms of a part */
    /* chunk: outputs of a task; grain: the unit in which cores share outputs, where a core has a single task. */
    int parts, chunk, grain;
    int outs, terms; /* of a tile */
    int space; /* values of a slot */
    int pitch; /* of slots, in values: more than `space` where a tensor has wider elements than values are */
    int words; /* of the program */
    /* slots: a tile of each input, then at least one tile of intermediate values. */
    unsigned char ndim, kept, inputs, slots;
    unsigned char combine, across, result; /* result: the slot of the result */
    unsigned char join; /* the launch is the second one, which joins the parts */
    unsigned char dtype[IK_NEST_TENSORS], order[IK_NEST_TENSORS];
};

/* Elements [at, at + n) of a tensor along the loops of one kind, as runs:
 *     for (ik_runs r(…); r.next();) with r.run elements from r.done on, the first at r.offset, r.stride apart.
 */
struct ik_runs {
    __shared_ptr__ const long long *shape, *strides;
    const int dims;
    const long long n;
    bool flat;
    long long index[IK_MAX_RANK], stride, offset = 0, run = 0, done = 0;

    inline __device__ ik_runs(
        const ik_job &j, __shared_ptr__ const long long *text, int tensor, bool outs, long long at, long long elements)
        : shape(text + (outs ? 0 : j.kept)), strides(shape + j.ndim * (1 + tensor)),
          dims(outs ? j.kept : j.ndim - j.kept), n(elements)
    {
        const int order = outs ? j.order[tensor] : j.order[tensor] / IK_TERMS_DENSE;
        flat = (order & (IK_OUTS_DENSE | IK_OUTS_STILL)) != 0;
        if (flat) {
            stride = order & IK_OUTS_STILL ? 0 : 1;
            offset = at * stride;
            return;
        }
        stride = strides[dims - 1];
        for (int d = dims - 1; d >= 0; d--) {
            index[d] = at % shape[d];
            at /= shape[d];
        }
    }

    inline __device__ bool next()
    {
        const int last = dims - 1;
        done += run;
        if (flat) {
            run = n - done;
            return run > 0;
        }
        if (run != 0) {
            index[last] = 0;
            for (int d = last - 1; d >= 0 && ++index[d] == shape[d]; d--)
                index[d] = 0;
        }
        run = ik_min(n - done, shape[last] - index[last]);
        offset = 0;
        for (int d = 0; d < dims; d++)
            offset += index[d] * strides[d];
        return run > 0;
    }
};

/* Copy to[i, k] = from[i * line + k * step] in local memory; lines of `to` are `pitch` apart. */
template <class T>
static inline __device__ void ik_lay_as(const T *from, int line, int step, int lines, int n, T *to, int pitch)
{
    for (int i = 0; i < lines; i++)
        for (int k = 0; k < n; k++)
            to[i * pitch + k] = from[i * line + k * step];
}

static inline __device__ void ik_lay(
    int size, const char *from, int line, int step, int lines, int n, char *to, int pitch)
{
    switch (size) {
    case 1: ik_lay_as((const unsigned char *)from, line, step, lines, n, (unsigned char *)to, pitch); return;
    case 2: ik_lay_as((const unsigned short *)from, line, step, lines, n, (unsigned short *)to, pitch); return;
    case 4: ik_lay_as((const unsigned *)from, line, step, lines, n, (unsigned *)to, pitch); return;
    default: ik_lay_as((const unsigned long long *)from, line, step, lines, n, (unsigned long long *)to, pitch);
    }
}

/* Fetch elements that are a few apart: a copy brings the gaps, too, for as many lines at a time as `scratch` has space
 * for. */
static inline __device__ void ik_fetch_spans(__global_ptr__ const char *from, long long line, long long step, int lines,
    int n, int size, char *to, int pitch, char *scratch, int space)
{
    const int wide = (int)(step < 0 ? -step : step), max_count = (int)ik_min(n, (space - 1) / wide + 1),
              span = wide * (max_count - 1) + 1, together = space / span;
    for (int at = 0; at < n; at += max_count) {
        const int m = (int)ik_min(max_count, n - at), length = wide * (m - 1) + 1, back = step < 0 ? length - 1 : 0;
        for (int i = 0; i < lines; i += together) {
            const int count = (int)ik_min(together, lines - i);
            for (int q = 0; q < count; q++)
                GM2LM_ASYNC(
                    from + ((i + q) * line + at * step - back) * size, scratch + q * span * size, length * size);
            mfence();
            ik_lay(size, scratch + back * size, span, (int)step, count, m, to + (i * pitch + at) * size, pitch);
        }
    }
}

/* Fetch lines of n elements to `to`; lines are `line` and elements `step` apart in memory, and mfence() completes it.
 * One copy brings a line, or a column, which is transposed in `scratch`; that has space for as many elements as the
 * tile. */
static inline __device__ void ik_fetch_block(__global_ptr__ const char *from, long long line, long long step, int lines,
    int n, int size, char *to, int pitch, char *scratch, int space)
{
    if (step == 1 && (line != 0 || lines == 1)) {
        const bool whole = line == n && pitch == n;
        for (int i = 0; i < (whole ? 1 : lines); i++)
            GM2LM_ASYNC(from + i * line * size, to + i * pitch * size, n * size * (whole ? lines : 1));
    } else if (step == 0) {
        ik_fetch_run(from, line, lines, size, scratch);
        mfence();
        ik_lay(size, scratch, 1, 0, lines, n, to, pitch);
    } else if (line == 0) {
        ik_fetch_run(from, step, n, size, scratch);
        mfence();
        ik_lay(size, scratch, 0, 1, lines, n, to, pitch);
    } else if (line == 1 && lines > 1) {
        for (int k = 0; k < n; k++)
            GM2LM_ASYNC(from + k * step * size, scratch + k * lines * size, lines * size);
        mfence();
        ik_lay(size, scratch, 1, lines, lines, n, to, pitch);
    } else if (step * size >= -IK_LINE / 2 && step * size <= IK_LINE / 2) {
        ik_fetch_spans(from, line, step, lines, n, size, to, pitch, scratch, space);
    } else {
        for (int i = 0; i < lines; i++)
            ik_fetch_run(from + i * line * size, step, n, size, to + i * pitch * size);
    }
}

/* Terms [term, term + terms) of outputs [out, out + outs). */
struct ik_tile {
    long long out, term;
    int outs, terms;
};

/* Fetch a tensor's elements of a tile, in the type that memory has. */
static inline __device__ void ik_fetch_tile(const ik_job &j, __shared_ptr__ const long long *text, int tensor,
    __global_ptr__ const char *x, const ik_tile &t, char *to, char *scratch, int space)
{
    const int size = ik_itemsize(j.dtype[tensor]), lines = j.across ? t.terms : t.outs, n = j.across ? t.outs : t.terms;
    for (ik_runs b(j, text, tensor, j.across, j.across ? t.out : t.term, n); b.next();)
        for (ik_runs a(j, text, tensor, !j.across, j.across ? t.term : t.out, lines); a.next();)
            ik_fetch_block(x + (a.offset + b.offset) * size, a.stride, b.stride, (int)a.run, (int)b.run, size,
                to + (a.done * n + b.done) * size, n, scratch, space);
    mfence();
}

/* Store a tile of y from local memory, where its lines are terms; `from` may be reused on return. */
static inline __device__ void ik_store_tile(
    const ik_job &j, __shared_ptr__ const long long *text, __global_ptr__ char *y, const ik_tile &t, const char *from)
{
    const int size = ik_itemsize(j.dtype[0]);
    mfence_lm();
    for (ik_runs b(j, text, 0, true, t.out, t.outs); b.next();)
        for (ik_runs a(j, text, 0, false, t.term, t.terms); a.next();)
            for (long long i = 0; i < a.run; i++)
                ik_store_run(from + ((a.done + i) * t.outs + b.done) * size, b.stride, (int)b.run, size,
                    y + (a.offset + i * a.stride + b.offset) * size);
    mfence();
}
#endif
