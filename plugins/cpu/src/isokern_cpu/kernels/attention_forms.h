/* The operators that one kernel of attention computes, and where each has its operands. */
#ifndef IK_ATTENTION_FORMS_H
#define IK_ATTENTION_FORMS_H
#include "kernel.h"
#include "operators/attention.h"
#include "operators/attention_lse.h"
#include "operators/mla_attention.h"
#include "operators/paged_attention.h"
#include "operators/paged_attention_prefill.h"
#include "operators/paged_mla_attention.h"
#include "operators/varlen_attention.h"

/* Positions in the plan; 0 where a form has no such operand. */
typedef struct form {
    uint32_t kind;
    bool latent; /* k and v are one cache [b, s, c] that all heads share */
    uint32_t lse, q, k, v, mask, lengths, seen, sinks, alibi, table, starts, key_starts;
} form;

static const form forms[] = {
    { .kind = IK_OP_ATTENTION,
        .q = IK_ATTENTION_Q,
        .k = IK_ATTENTION_K,
        .v = IK_ATTENTION_V,
        .mask = IK_ATTENTION_MASK,
        .lengths = IK_ATTENTION_LENGTHS,
        .seen = IK_ATTENTION_SEEN,
        .sinks = IK_ATTENTION_SINKS,
        .alibi = IK_ATTENTION_ALIBI },
    { .kind = IK_OP_ATTENTION_LSE,
        .lse = IK_ATTENTION_LSE_LSE,
        .q = IK_ATTENTION_LSE_Q,
        .k = IK_ATTENTION_LSE_K,
        .v = IK_ATTENTION_LSE_V,
        .mask = IK_ATTENTION_LSE_MASK,
        .lengths = IK_ATTENTION_LSE_LENGTHS,
        .seen = IK_ATTENTION_LSE_SEEN,
        .sinks = IK_ATTENTION_LSE_SINKS,
        .alibi = IK_ATTENTION_LSE_ALIBI },
    { .kind = IK_OP_PAGED_ATTENTION,
        .q = IK_PAGED_ATTENTION_Q,
        .k = IK_PAGED_ATTENTION_K,
        .v = IK_PAGED_ATTENTION_V,
        .lengths = IK_PAGED_ATTENTION_LENGTHS,
        .sinks = IK_PAGED_ATTENTION_SINKS,
        .alibi = IK_PAGED_ATTENTION_ALIBI,
        .table = IK_PAGED_ATTENTION_BLOCK_TABLE },
    { .kind = IK_OP_PAGED_ATTENTION_PREFILL,
        .q = IK_PAGED_ATTENTION_PREFILL_Q,
        .k = IK_PAGED_ATTENTION_PREFILL_K,
        .v = IK_PAGED_ATTENTION_PREFILL_V,
        .lengths = IK_PAGED_ATTENTION_PREFILL_LENGTHS,
        .sinks = IK_PAGED_ATTENTION_PREFILL_SINKS,
        .table = IK_PAGED_ATTENTION_PREFILL_BLOCK_TABLE,
        .starts = IK_PAGED_ATTENTION_PREFILL_CU_SEQLENS },
    { .kind = IK_OP_VARLEN_ATTENTION,
        .q = IK_VARLEN_ATTENTION_Q,
        .k = IK_VARLEN_ATTENTION_K,
        .v = IK_VARLEN_ATTENTION_V,
        .sinks = IK_VARLEN_ATTENTION_SINKS,
        .starts = IK_VARLEN_ATTENTION_CU_SEQLENS_Q,
        .key_starts = IK_VARLEN_ATTENTION_CU_SEQLENS_K },
    { .kind = IK_OP_MLA_ATTENTION,
        .latent = true,
        .q = IK_MLA_ATTENTION_Q,
        .k = IK_MLA_ATTENTION_CACHE,
        .v = IK_MLA_ATTENTION_CACHE,
        .lengths = IK_MLA_ATTENTION_LENGTHS,
        .sinks = IK_MLA_ATTENTION_SINKS },
    { .kind = IK_OP_PAGED_MLA_ATTENTION,
        .latent = true,
        .q = IK_PAGED_MLA_ATTENTION_Q,
        .k = IK_PAGED_MLA_ATTENTION_CACHE,
        .v = IK_PAGED_MLA_ATTENTION_CACHE,
        .lengths = IK_PAGED_MLA_ATTENTION_LENGTHS,
        .sinks = IK_PAGED_MLA_ATTENTION_SINKS,
        .table = IK_PAGED_MLA_ATTENTION_BLOCK_TABLE },
};

static const form *find_form(uint32_t kind)
{
    const form *f = forms;
    while (f->kind != kind)
        f++;
    return f;
}

/* The attributes that all forms have, in their order. */
typedef ik_attention_attrs common_attrs;
_Static_assert(sizeof(ik_paged_attention_attrs) == sizeof(common_attrs)
        && sizeof(ik_varlen_attention_attrs) == sizeof(common_attrs)
        && offsetof(ik_mla_attention_attrs, causal) == sizeof(int64_t)
        && sizeof(ik_mla_attention_attrs) == sizeof(common_attrs) + sizeof(int64_t),
    "the attributes of all forms end alike");

static common_attrs attrs_of(const form *f, const void *attrs)
{
    common_attrs common;
    memcpy(&common, (const char *)attrs + (f->latent ? sizeof(int64_t) : 0), sizeof common);
    return common;
}

/* An operand that may be absent: null then. */
typedef struct operand {
    const ik_tensor *t;
    const char *at;
} operand;

static operand operand_at(const ik_plan *plan, void *const *data, uint32_t position)
{
    if (position == 0 || !ik_present(plan, position))
        return (operand){ NULL, NULL };
    return (operand){ &plan->tensors[position], ik_ptr(plan, data, position) };
}

/* A tensor of three dims with one more, of one element, before dim `before`. */
static ik_tensor with_four_dims(const ik_tensor *t, int before)
{
    ik_tensor r = *t;
    if (t->ndim == 4)
        return r;
    r.ndim = 4;
    r.shape[before] = 1, r.strides[before] = 0;
    for (int d = before; d < 3; d++)
        r.shape[d + 1] = t->shape[d], r.strides[d + 1] = t->strides[d];
    return r;
}
#endif
