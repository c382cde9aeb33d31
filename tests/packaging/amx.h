/* AMX emulated in plain C, so that a kernel's results can be judged on a machine without it. Each instruction does
 * what the Intel SDM (volume 2, "Operation") says, for palette 1 only. Included before the kernel, this header
 * replaces the compiler's intrinsics.
 *
 * Where the processor would raise #GP or #UD, the program prints the reason and aborts; also where a thread configures
 * tiles twice without a release. */
#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AMX_TILES = 8, AMX_ROWS = 16, AMX_ROW_BYTES = 64 };

static _Thread_local struct {
    int palette;
    int rows[AMX_TILES], row_bytes[AMX_TILES];
    uint8_t row[AMX_TILES][AMX_ROWS][AMX_ROW_BYTES];
} amx;

_Atomic int64_t amx_configured, amx_released; /* counts over all threads */

static inline void amx_require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "AMX: %s\n", what);
        abort();
    }
}

static inline void amx_clear(int tile) { memset(amx.row[tile], 0, sizeof amx.row[tile]); }

static inline void amx_configure(const void *memory)
{
    const uint8_t *bytes = memory;
    amx_require(amx.palette == 0, "tiles are configured again without a release");
    amx_require(bytes[0] == 1 && bytes[1] == 0, "palette 1 from row 0 on is all that is known here");
    for (int i = 2; i < 64; i++)
        amx_require(bytes[i] == 0 || (i >= 16 && i < 32) || (i >= 48 && i < 56),
            "#GP: a reserved byte of the configuration is set");
    for (int i = 0; i < AMX_TILES; i++) {
        amx.row_bytes[i] = bytes[16 + 2 * i] | bytes[17 + 2 * i] << 8;
        amx.rows[i] = bytes[48 + i];
        amx_require(
            amx.row_bytes[i] <= AMX_ROW_BYTES && amx.rows[i] <= AMX_ROWS, "#GP: a tile is larger than the palette's");
        amx_require((amx.row_bytes[i] == 0) == (amx.rows[i] == 0), "#GP: a tile has rows or columns alone");
        amx_clear(i);
    }
    amx.palette = 1;
    amx_configured++;
}

static inline void amx_release(void)
{
    memset(&amx, 0, sizeof amx);
    amx_released++;
}

static inline void amx_require_tile(int tile)
{ amx_require(amx.palette == 1 && amx.rows[tile] != 0, "#UD: a tile is used that is not configured"); }

static inline void amx_zero(int tile)
{
    amx_require_tile(tile);
    amx_clear(tile);
}

static inline void amx_load(int tile, const void *base, int64_t stride)
{
    amx_zero(tile);
    for (int i = 0; i < amx.rows[tile]; i++)
        memcpy(amx.row[tile][i], (const char *)base + i * stride, (size_t)amx.row_bytes[tile]);
}

static inline void amx_store(int tile, void *base, int64_t stride)
{
    amx_require_tile(tile);
    for (int i = 0; i < amx.rows[tile]; i++)
        memcpy((char *)base + i * stride, amx.row[tile][i], (size_t)amx.row_bytes[tile]);
}

/* Subnormal operands and results become zero of the same sign. */
static inline float amx_flushed(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }

static inline float amx_number(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return amx_flushed(x);
}

/* sum[m, n] += Σ_k a[m, 2k] * b[k, 2n] + Σ_k a[m, 2k + 1] * b[k, 2n + 1]; each of the two sums is a chain of fused
 * multiply-adds. */
static inline void amx_multiply(int sum, int a, int b)
{
    amx_require_tile(sum), amx_require_tile(a), amx_require_tile(b);
    amx_require(sum != a && sum != b && a != b, "#UD: a tile is given twice");
    amx_require(amx.rows[sum] == amx.rows[a] && amx.row_bytes[sum] == amx.row_bytes[b]
            && amx.row_bytes[a] == 4 * amx.rows[b] && amx.row_bytes[b] % 4 == 0,
        "#UD: the shapes of the tiles do not agree");
    const int count = amx.row_bytes[sum] / 4;
    for (int m = 0; m < amx.rows[sum]; m++) {
        uint32_t left[AMX_ROW_BYTES / 4], right[AMX_ROW_BYTES / 4];
        float even[AMX_ROW_BYTES / 4] = { 0 }, odd[AMX_ROW_BYTES / 4] = { 0 }, total[AMX_ROW_BYTES / 4];
        memcpy(left, amx.row[a][m], sizeof left);
        for (int k = 0; k < amx.row_bytes[a] / 4; k++) {
            memcpy(right, amx.row[b][k], sizeof right);
            for (int n = 0; n < count; n++) {
                even[n] = amx_flushed(fmaf(amx_number(left[k] << 16), amx_number(right[n] << 16), even[n]));
                odd[n] =
                    amx_flushed(fmaf(amx_number(left[k] & 0xffff0000u), amx_number(right[n] & 0xffff0000u), odd[n]));
            }
        }
        memcpy(total, amx.row[sum][m], sizeof total);
        for (int n = 0; n < count; n++)
            total[n] = amx_flushed(amx_flushed(total[n]) + amx_flushed(even[n] + odd[n]));
        memcpy(amx.row[sum][m], total, sizeof total);
    }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig amx_configure
#define _tile_release amx_release
#define _tile_zero amx_zero
#define _tile_loadd amx_load
#define _tile_stored amx_store
#define _tile_dpbf16ps amx_multiply
