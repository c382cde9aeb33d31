/* The rows of keys and values: in order, or where a table of pages says; IK_GIVEN is the type of lengths and table.
 *
 * The offset of key i of a sequence b is IK_FIRST(k, b) + IK_ROW_OF(k, i), besides its head's. */
#ifndef IK_PAGES_H
#define IK_PAGES_H

/* The number of keys of a sequence; 0 where the given one is out of range. */
static IK_INLINE ik_i64 valid_length(ik_i64 given, ik_i64 keys) { return given >= 0 && given <= keys ? given : 0; }

#ifdef IK_HAS_block_table
#define IK_PAGES p.block_table.shape[1]
#define IK_KEYS ((ik_i64)p.block_table.shape[1] * p.k.shape[1])
#define IK_FIRST(t, b) 0
#define IK_ROW_OF(t, key) ik_row_in_page(p, block_table, b, key, p.t.strides[0], p.t.strides[1])

static IK_INLINE ik_i64 page_at(
    IK_RECORD(ik_args) p, IK_GLOBAL const IK_GIVEN *block_table, ik_index b, ik_index number)
{ return block_table[p.block_table.offset + b * p.block_table.strides[0] + number * p.block_table.strides[1]]; }

/* The offset of a row, `page_step` elements from one page to the next and `step` from one row to the next. */
static IK_INLINE ik_index ik_row_in_page(IK_RECORD(ik_args) p, IK_GLOBAL const IK_GIVEN *block_table, ik_index b,
    ik_index key, ik_index page_step, ik_index step)
{
    const ik_index size = p.k.shape[1], number = key / size;
    return (ik_index)page_at(p, block_table, b, number) * page_step + (key - number * size) * step;
}

/* The first of every `step`th entry of a sequence's table, from `first` on, that names no page and has keys before
 * `length`; the number of entries where all do. */
static IK_INLINE ik_index wrong_page(IK_RECORD(ik_args) p, IK_GLOBAL const IK_GIVEN *block_table, ik_index b,
    ik_i64 length, ik_index first, ik_index step)
{
    for (ik_index i = first; i < IK_PAGES && i * p.k.shape[1] < length; i += step) {
        const ik_i64 page = page_at(p, block_table, b, i);
        if (page < 0 || page >= p.k.shape[0])
            return i;
    }
    return IK_PAGES;
}

/* Report the first sequence whose length is out of range, or one of whose pages is. */
static IK_INLINE void report_pages(IK_RECORD(ik_args) p, IK_GLOBAL const IK_GIVEN *lengths,
    IK_GLOBAL const IK_GIVEN *block_table, IK_LOCAL ik_index *places, IK_GLOBAL ik_i64 *error)
{
    const ik_index count = p.lengths.shape[0];
    ik_index first = count;
    for (ik_index b = IK_LOCAL_ID; b < first; b += IK_GROUP) {
        const ik_i64 length = lengths[p.lengths.offset + b * p.lengths.strides[0]];
        if (length < 0 || length > IK_KEYS || wrong_page(p, block_table, b, length, 0, 1) < IK_PAGES)
            first = b;
    }
    first = group_min(first, places);
    if (IK_LOCAL_ID == 0 && first < count) {
        const ik_i64 length = lengths[p.lengths.offset + first * p.lengths.strides[0]];
        if (length < 0 || length > IK_KEYS) {
            ik_report(error, first, length);
        } else {
            const ik_index wrong = wrong_page(p, block_table, first, length, 0, 1);
            ik_report(error, first * IK_PAGES + wrong, page_at(p, block_table, first, wrong));
        }
    }
}
#else
#define IK_KEYS p.k.shape[1]
#define IK_FIRST(t, b) (b) * p.t.strides[0]
#define IK_ROW_OF(t, key) (key) * p.t.strides[1]
#endif
#endif
