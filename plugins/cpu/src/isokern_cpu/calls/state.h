/* What the files of the extension `_calls` share: the module's state, and its types. */
#ifndef ISOKERN_STATE_H
#define ISOKERN_STATE_H
#include <Python.h>
#include <stdint.h>

enum { CALLS_TENSORS = 32, CALLS_OUTPUTS = 4 }; /* of a call, at most */

/* A slot of a class in Python: its descriptor, and the functions by which that reads and writes the slot. */
typedef struct slot {
    PyObject *descriptor;
    descrgetfunc get;
    descrsetfunc set;
} slot;

/* The classes of core, and what a call has to look at, as `use` was given them. The module never lets go of them: they
 * live as long as the process, and so does the module, which the types and all their objects refer to. */
typedef struct state {
    PyObject *heap_type, *block_type, *call_type, *finder_type;
    PyObject *tensor, *pooled, *dtype, *invalid, *dumps, *debug, *current;
    slot desc, facts, buffer, span;               /* of a Tensor */
    slot memory, nbytes, element, address, handle; /* of a PooledBuffer; `element` is its dtype */
    PyObject *name_handle, *name_address, *name_dict, *name_level, *name_name, *name_out, *name_facts, *name_writable;
    PyObject *zero;
} state;

typedef struct heap heap;
typedef struct call call;

PyObject *calls_take(heap *from, uint64_t nbytes, PyObject **address, PyObject **span);
int calls_address(const state *s, PyObject *handle, uint64_t *address);
PyObject *calls_run(call *c, PyObject *const *given, Py_ssize_t count, PyObject *out);

static inline PyObject *get_slot(const slot *of, PyObject *object) { return of->get(of->descriptor, object, NULL); }

static inline int set_slot(const slot *of, PyObject *object, PyObject *value)
{ return of->set(of->descriptor, object, value); }

static inline int is_exactly(PyObject *object, PyObject *type) { return (PyObject *)Py_TYPE(object) == type; }

static inline PyObject *own(PyObject *object)
{
    Py_INCREF(object);
    return object;
}

extern PyType_Spec calls_heap_spec, calls_block_spec, calls_call_spec, calls_finder_spec;
#endif
