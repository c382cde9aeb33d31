/* Heap: where a memory's outputs of repeated calls lie. What is freed is kept for the next call that asks for as much:
 * up to 64 blocks and 1 MiB of one size, of up to 64 sizes, and 16 MiB in all. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, SIZES = 64, TABLE = 128, KEPT = 64, KEPT_BYTES = 1 << 20, IDLE_BYTES = 1 << 24 };

/* Memory with what a tensor over it needs, made once. */
typedef struct chunk {
    struct chunk *next;
    void *raw;
    uint64_t at, nbytes;
    PyObject *address, *span;
} chunk;

/* The chunks of one size that are not in use. */
typedef struct kept {
    chunk *first;
    uint64_t nbytes;
    uint32_t count, is_used;
} kept;

struct heap {
    PyObject_HEAD state *state;
    PyObject *module, *note; /* `note` is called when more than `limit` bytes are in use */
    uint64_t live, used, idle, limit;
    uint32_t sizes;
    kept table[TABLE];
};

/* The handle of memory in use: as an integer it is the address. */
typedef struct block {
    PyObject_HEAD heap *heap;
    chunk *chunk;
} block;

static void drop_chunk(chunk *c)
{
    Py_XDECREF(c->address);
    Py_XDECREF(c->span);
    free(c->raw);
    free(c);
}

static chunk *make_chunk(uint64_t nbytes)
{
    chunk *c = nbytes < (uint64_t)PY_SSIZE_T_MAX - ALIGNMENT ? calloc(1, sizeof *c) : NULL;
    if (c == NULL || (c->raw = malloc(nbytes + ALIGNMENT)) == NULL) {
        free(c);
        PyErr_NoMemory();
        return NULL;
    }
    c->at = ((uintptr_t)c->raw + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    c->nbytes = nbytes;
    c->address = PyLong_FromUnsignedLongLong(c->at);
    PyObject *end = PyLong_FromUnsignedLongLong(c->at + nbytes);
    if (c->address != NULL && end != NULL)
        c->span = PyTuple_Pack(2, c->address, end);
    Py_XDECREF(end);
    if (c->span != NULL)
        return c;
    drop_chunk(c);
    return NULL;
}

static void free_all(heap *a)
{
    for (int i = 0; i < TABLE; i++) {
        while (a->table[i].first != NULL) {
            chunk *c = a->table[i].first;
            a->table[i].first = c->next;
            drop_chunk(c);
        }
        a->table[i] = (kept){ NULL, 0, 0, 0 };
    }
    a->sizes = 0;
    a->idle = 0;
}

/* Return the place of a size in the table, which is never full. */
static kept *find_size(heap *a, uint64_t nbytes)
{
    for (uint64_t i = nbytes * 0x9E3779B97F4A7C15u >> 57;; i = (i + 1) % TABLE)
        if (!a->table[i].is_used || a->table[i].nbytes == nbytes)
            return &a->table[i];
}

static void give_back(heap *a, chunk *c)
{
    kept *k = c->nbytes > KEPT_BYTES ? NULL : find_size(a, c->nbytes);
    if (k == NULL || k->count >= KEPT || (k->count + 1) * c->nbytes > KEPT_BYTES) {
        drop_chunk(c);
        return;
    }
    if ((!k->is_used && a->sizes == SIZES) || a->idle + c->nbytes > IDLE_BYTES) {
        free_all(a);
        k = find_size(a, c->nbytes);
    }
    c->next = k->first;
    a->sizes += !k->is_used;
    a->idle += c->nbytes;
    *k = (kept){ c, c->nbytes, k->count + 1, 1 };
}

/* Return a new Block, and borrowed references to its address and to (its first byte, one past its last). */
PyObject *calls_take(heap *a, uint64_t nbytes, PyObject **address, PyObject **span)
{
    kept *k = find_size(a, nbytes);
    chunk *c = k->first;
    if (c != NULL) {
        k->first = c->next;
        k->count--;
        a->idle -= nbytes;
    } else if ((c = make_chunk(nbytes)) == NULL)
        return NULL;
    block *b = PyObject_New(block, (PyTypeObject *)a->state->block_type);
    if (b == NULL) {
        drop_chunk(c);
        return NULL;
    }
    Py_INCREF(a);
    b->heap = a;
    b->chunk = c;
    *address = c->address;
    *span = c->span;
    a->used++;
    if ((a->live += nbytes) > a->limit) {
        PyObject *noted = PyObject_CallObject(a->note, NULL);
        if (noted == NULL) {
            Py_DECREF(b);
            return NULL;
        }
        Py_DECREF(noted);
    }
    return (PyObject *)b;
}

/* Write the address that a handle stands for; -1 with an error for none. */
int calls_address(const state *s, PyObject *handle, uint64_t *address)
{
    if (is_exactly(handle, s->block_type)) {
        *address = ((block *)handle)->chunk->at;
        return 0;
    }
    *address = PyLong_AsUnsignedLongLong(handle);
    return *address == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

static void drop_block(PyObject *self)
{
    heap *a = ((block *)self)->heap;
    chunk *c = ((block *)self)->chunk;
    PyTypeObject *type = Py_TYPE(self);
    a->used--;
    a->live -= c->nbytes;
    give_back(a, c);
    PyObject_Free(self);
    Py_DECREF(type);
    Py_DECREF(a);
}

static PyObject *block_as_integer(PyObject *self) { return own(((block *)self)->chunk->address); }

static PyObject *get_address(PyObject *self, void *unused)
{
    (void)unused;
    return block_as_integer(self);
}

static PyGetSetDef block_attributes[] = {
    { "address", get_address, NULL, "The address of the first byte.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot block_slots[] = {
    { Py_tp_doc, "Memory in use, which goes back when nobody has this object; as an integer, its address." },
    { Py_tp_dealloc, drop_block },
    { Py_tp_getset, block_attributes },
    { Py_nb_index, block_as_integer },
    { Py_nb_int, block_as_integer },
    { 0, NULL },
};

PyType_Spec calls_block_spec = { "isokern_cpu._calls.Block", sizeof(block), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, block_slots };

static PyObject *new_heap(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *note, *module = PyType_GetModule(type);
    static char *names[] = { "note", NULL };
    if (module == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &note))
        return NULL;
    heap *a = (heap *)PyType_GenericAlloc(type, 0);
    if (a == NULL)
        return NULL;
    a->state = PyModule_GetState(module);
    a->module = own(module);
    a->note = own(note);
    return (PyObject *)a;
}

static int traverse_heap(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((heap *)self)->module);
    Py_VISIT(((heap *)self)->note);
    return 0;
}

static void drop_heap(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    free_all((heap *)self);
    Py_XDECREF(((heap *)self)->note);
    Py_XDECREF(((heap *)self)->module);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *take(PyObject *self, PyObject *args)
{
    unsigned long long nbytes;
    int zero = 0;
    PyObject *address, *span, *given;
    if (!PyArg_ParseTuple(args, "O|p", &given, &zero))
        return NULL;
    nbytes = PyLong_AsUnsignedLongLong(given); /* which refuses what is negative, and "K" would not */
    if (nbytes == UINT64_MAX && PyErr_Occurred())
        return NULL;
    PyObject *made = calls_take((heap *)self, nbytes, &address, &span);
    if (made != NULL && zero)
        memset((void *)(uintptr_t)((block *)made)->chunk->at, 0, nbytes);
    return made;
}

static PyObject *get_live(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((heap *)self)->live);
}

static PyObject *get_used(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((heap *)self)->used);
}

static PyObject *get_largest(PyObject *self, void *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong(KEPT_BYTES);
}

static PyObject *get_limit(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((heap *)self)->limit);
}

static int set_limit(PyObject *self, PyObject *limit, void *unused)
{
    (void)unused;
    uint64_t count = limit == NULL ? 0 : PyLong_AsUnsignedLongLong(limit);
    if (count == UINT64_MAX && PyErr_Occurred())
        return -1;
    ((heap *)self)->limit = count;
    return 0;
}

static PyGetSetDef heap_attributes[] = {
    { "live", get_live, NULL, "The bytes that are in use.", NULL },
    { "used", get_used, NULL, "The number of blocks that are in use.", NULL },
    { "largest", get_largest, NULL, "The bytes of the largest block that is kept for the next call.", NULL },
    { "limit", get_limit, set_limit, "The bytes in use from which on `note` is called for each new block.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyMethodDef heap_methods[] = {
    { "take", take, METH_VARARGS, "Return a Block of so many bytes, of 0 perhaps; MemoryError where there are none." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot heap_slots[] = {
    { Py_tp_doc, "Heap(note): memory of the outputs of repeated calls." },
    { Py_tp_new, new_heap },
    { Py_tp_dealloc, drop_heap },
    { Py_tp_traverse, traverse_heap },
    { Py_tp_getset, heap_attributes },
    { Py_tp_methods, heap_methods },
    { 0, NULL },
};

PyType_Spec calls_heap_spec = { "isokern_cpu._calls.Heap", sizeof(heap), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    heap_slots };
