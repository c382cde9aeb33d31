/* Finder: finds the calls of an operator that were made before, by what `key_of` in eager/repeated.py finds them by. */
#include "state.h"

enum { GROUP = 1 << 20 }; /* as `key_of` has it */

typedef struct finder {
    PyObject_HEAD state *state;
    PyObject *module, *calls, *others, *describe; /* two tables, or one twice */
    Py_ssize_t inputs; /* the most arguments of a call that is in them */
} finder;

/* The tensors of a call, their facts and `out`, all references of our own. */
typedef struct found {
    PyObject *tensors[CALLS_TENSORS], *facts[CALLS_TENSORS], *out, *out_facts, *groups;
    Py_ssize_t count;
} found;

static void drop_found(found *f)
{
    for (Py_ssize_t i = 0; i < f->count; i++) {
        Py_DECREF(f->facts[i]);
        Py_DECREF(f->tensors[i]);
    }
    Py_XDECREF(f->out);
    Py_XDECREF(f->out_facts);
    Py_XDECREF(f->groups);
}

/* Add a tensor, or None; 0 where it is something else. */
static int add_tensor(const state *s, found *f, PyObject *value)
{
    PyObject *facts = NULL;
    if (f->count < CALLS_TENSORS && value == Py_None)
        facts = own(Py_None);
    else if (f->count < CALLS_TENSORS && is_exactly(value, s->tensor))
        facts = get_slot(&s->facts, value);
    if (facts == NULL)
        return 0;
    f->facts[f->count] = facts;
    f->tensors[f->count++] = own(value);
    return 1;
}

/* Collect the tensors of a call; 0 where one is no tensor, or there are too many arguments. */
static int collect(const finder *self, found *f, PyObject *args)
{
    const state *s = self->state;
    long long groups = 0;
    const Py_ssize_t size = PyTuple_Size(args);
    if (size > self->inputs)
        return 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *value = PyTuple_GetItem(args, i);
        const int is_list = is_exactly(value, (PyObject *)&PyList_Type);
        if (!is_list && !is_exactly(value, (PyObject *)&PyTuple_Type)) {
            if (!add_tensor(s, f, value))
                return 0;
            continue;
        }
        const Py_ssize_t length = is_list ? PyList_Size(value) : PyTuple_Size(value);
        if (groups != 0) /* of two lists the slow way makes a key */
            return 0;
        groups = (i + 1) * GROUP + length;
        for (Py_ssize_t j = 0; j < length; j++)
            if (!add_tensor(s, f, is_list ? PyList_GetItem(value, j) : PyTuple_GetItem(value, j)))
                return 0;
    }
    while (f->count > 0 && f->tensors[f->count - 1] == Py_None) {
        Py_DECREF(f->facts[--f->count]);
        Py_DECREF(Py_None);
    }
    if (groups != 0 && (f->groups = PyLong_FromLongLong(groups)) == NULL)
        return 0;
    return f->count > 0;
}

/* Return the values of the attributes as bytes, and write their names into the key from `at`; null for none such. */
static PyObject *read_attributes(const state *s, PyObject *kwargs, PyObject *key, Py_ssize_t at, Py_ssize_t count)
{
    PyObject *values = PyTuple_New(count), *name, *value;
    Py_ssize_t position = 0, i = 0;
    if (values == NULL)
        return NULL;
    while (kwargs != NULL && PyDict_Next(kwargs, &position, &name, &value)) {
        if (name == s->name_out && is_exactly(value, s->tensor))
            continue;
        PyObject *plain = is_exactly(value, s->dtype) ? PyObject_GetAttr(value, s->name_name) : own(value);
        if (plain == NULL || i == count) {
            Py_XDECREF(plain);
            Py_DECREF(values);
            return NULL;
        }
        PyTuple_SetItem(key, at + i, own(name));
        PyTuple_SetItem(values, i++, plain);
    }
    PyObject *bytes = i == count ? PyObject_CallFunctionObjArgs(s->dumps, values, s->zero, NULL) : NULL;
    Py_DECREF(values);
    return bytes;
}

/* Return the key of a call, as `key_of` does; null, perhaps with an error, for a call that is not found so. */
static PyObject *make_key(const finder *self, found *f, PyObject *args, PyObject *kwargs)
{
    const state *s = self->state;
    if (!collect(self, f, args))
        return NULL;
    Py_ssize_t named = kwargs == NULL ? 0 : PyDict_Size(kwargs), at = 0;
    if (named > 0) {
        PyObject *out = PyDict_GetItemWithError(kwargs, s->name_out);
        if (out != NULL && is_exactly(out, s->tensor)) {
            f->out = own(out);
            if ((f->out_facts = get_slot(&s->facts, out)) == NULL)
                return NULL;
            named--;
        }
    }
    int plain = named == 0 && f->groups == NULL;
    PyObject *key = PyTuple_New((f->out != NULL ? 2 : 0) + f->count + (plain ? 0 : named + 2));
    if (key == NULL)
        return NULL;
    if (f->out != NULL) {
        PyTuple_SetItem(key, at++, own(s->name_out));
        PyTuple_SetItem(key, at++, own(f->out_facts));
    }
    for (Py_ssize_t i = 0; i < f->count; i++)
        PyTuple_SetItem(key, at++, own(f->facts[i]));
    if (plain)
        return key;
    PyTuple_SetItem(key, at++, own(f->groups != NULL ? f->groups : s->zero));
    PyObject *bytes = read_attributes(s, kwargs, key, at, named);
    if (bytes == NULL) {
        Py_DECREF(key);
        return NULL;
    }
    PyTuple_SetItem(key, at + named, bytes);
    return key;
}

static PyObject *call_known(const state *s, PyObject *known, const found *f)
{
    if (is_exactly(known, s->call_type))
        return calls_run((call *)known, f->tensors, f->count, f->out);
    PyObject *inputs = PyTuple_New(f->count), *result = NULL;
    for (Py_ssize_t i = 0; inputs != NULL && i < f->count; i++)
        PyTuple_SetItem(inputs, i, own(f->tensors[i]));
    if (inputs != NULL)
        result = PyObject_CallFunctionObjArgs(known, inputs, f->out, NULL);
    Py_XDECREF(inputs);
    return result;
}

/* Make a call: as the one that was made before, else as `describe` does. */
static PyObject *find(const finder *self, PyObject *args, PyObject *kwargs)
{
    const state *s = self->state;
    found f;
    f.count = 0;
    f.out = f.out_facts = f.groups = NULL;
    PyObject *key = make_key(self, &f, args, kwargs), *known = NULL, *result = NULL;
    if (key != NULL) {
        known = PyDict_GetItemWithError(self->calls, key);
        if (known == NULL && !PyErr_Occurred() && self->others != self->calls)
            known = PyDict_GetItemWithError(self->others, key);
        Py_XINCREF(known); /* another thread may clear the table while it runs */
        Py_DECREF(key);
    }
    if (known == NULL && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_AttributeError)) {
            drop_found(&f);
            return NULL;
        }
        PyErr_Clear(); /* a value has no bytes, or a tensor no facts */
    }
    if (known != NULL)
        result = call_known(s, known, &f);
    Py_XDECREF(known);
    drop_found(&f);
    return known != NULL ? result : PyObject_Call(self->describe, args, kwargs);
}

static PyObject *call_finder(PyObject *self, PyObject *args, PyObject *kwargs)
{ return find((finder *)self, args, kwargs); }

static PyObject *call_find(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 2 || !is_exactly(given[0], (PyObject *)&PyTuple_Type)
        || !is_exactly(given[1], (PyObject *)&PyDict_Type))
        return PyErr_Format(PyExc_TypeError, "find takes a tuple and a dict");
    return find((finder *)self, given[0], given[1]);
}

static PyObject *call_key(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 2 || !is_exactly(given[0], (PyObject *)&PyTuple_Type)
        || !is_exactly(given[1], (PyObject *)&PyDict_Type))
        return PyErr_Format(PyExc_TypeError, "key_of takes a tuple and a dict");
    found f;
    f.count = 0;
    f.out = f.out_facts = f.groups = NULL;
    PyObject *key = make_key((finder *)self, &f, given[0], given[1]);
    drop_found(&f);
    return key != NULL || PyErr_Occurred() ? key : own(Py_None);
}

static PyObject *new_finder(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *calls, *others, *describe, *module = PyType_GetModule(type);
    Py_ssize_t inputs;
    if (module == NULL || kwargs != NULL
        || !PyArg_ParseTuple(args, "O!O!nO", &PyDict_Type, &calls, &PyDict_Type, &others, &inputs, &describe))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "Finder(calls, others, inputs, describe)");
    state *s = PyModule_GetState(module);
    if (s->tensor == NULL)
        return PyErr_Format(PyExc_RuntimeError, "call `use` first");
    finder *f = (finder *)PyType_GenericAlloc(type, 0);
    if (f == NULL)
        return NULL;
    f->state = s;
    f->module = own(module);
    f->calls = own(calls);
    f->others = own(others);
    f->inputs = inputs;
    f->describe = own(describe);
    return (PyObject *)f;
}

static int traverse_finder(PyObject *self, visitproc visit, void *arg)
{
    finder *f = (finder *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(f->module);
    Py_VISIT(f->calls);
    Py_VISIT(f->others);
    Py_VISIT(f->describe);
    return 0;
}

static void drop_finder(PyObject *self)
{
    finder *f = (finder *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(f->calls);
    Py_XDECREF(f->others);
    Py_XDECREF(f->describe);
    Py_XDECREF(f->module);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef finder_methods[] = {
    { "find", (PyCFunction)(void (*)(void))call_find, METH_FASTCALL,
        "Make a call of a tuple and a dict of arguments." },
    { "key_of", (PyCFunction)(void (*)(void))call_key, METH_FASTCALL, "Return what a call is found by, or None." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot finder_slots[] = {
    { Py_tp_doc,
        "Finder(calls, others, inputs, describe): makes calls of at most so many arguments as those that were made "
        "before and are in one of two tables, all else by describe." },
    { Py_tp_new, new_finder },
    { Py_tp_dealloc, drop_finder },
    { Py_tp_traverse, traverse_finder },
    { Py_tp_call, call_finder },
    { Py_tp_methods, finder_methods },
    { 0, NULL },
};

PyType_Spec calls_finder_spec = { "isokern_cpu._calls.Finder", sizeof(finder), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, finder_slots };
