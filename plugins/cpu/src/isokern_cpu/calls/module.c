/* The extension `_calls`: eager calls that were made before, found and made without Python's interpreter. It has what
 * eager/repeated.py, backend/host_memory.py and the kernels do in Python, for the calls that are usual. */
#include "state.h"

static int read_slot(slot *of, PyObject *type, const char *name)
{
    PyObject *found = PyObject_GetAttrString(type, name);
    if (found == NULL)
        return -1;
    of->get = (descrgetfunc)PyType_GetSlot(Py_TYPE(found), Py_tp_descr_get);
    of->set = (descrsetfunc)PyType_GetSlot(Py_TYPE(found), Py_tp_descr_set);
    if (of->get == NULL || of->set == NULL) {
        Py_DECREF(found);
        PyErr_Format(PyExc_TypeError, "%s is no slot", name);
        return -1;
    }
    Py_XDECREF(of->descriptor);
    of->descriptor = found;
    return 0;
}

static PyObject *use(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = { "tensor", "pooled", "dtype", "invalid", "dumps", "debug", "current", NULL };
    PyObject *given[7];
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O!OO!O", names, &PyType_Type, &given[0], &PyType_Type,
            &given[1], &PyType_Type, &given[2], &PyType_Type, &given[3], &given[4], &PyDict_Type, &given[5], &given[6]))
        return NULL;
    state *s = PyModule_GetState(module);
    if (s->tensor != NULL)
        Py_RETURN_NONE;
    struct {
        slot *of;
        int of_pooled;
        const char *name;
    } wanted[] = {
        { &s->desc, 0, "desc" },
        { &s->facts, 0, "facts" },
        { &s->buffer, 0, "buffer" },
        { &s->span, 0, "span" },
        { &s->memory, 1, "memory" },
        { &s->nbytes, 1, "nbytes" },
        { &s->element, 1, "dtype" },
        { &s->address, 1, "address" },
        { &s->handle, 1, "handle" },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (read_slot(wanted[i].of, given[wanted[i].of_pooled], wanted[i].name) != 0)
            return NULL;
    PyObject **fields[] = { &s->tensor, &s->pooled, &s->dtype, &s->invalid, &s->dumps, &s->debug, &s->current };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        Py_INCREF(given[i]);
        *fields[i] = given[i];
    }
    Py_RETURN_NONE;
}

static int start(PyObject *module)
{
    state *s = PyModule_GetState(module);
    struct {
        PyObject **of;
        PyType_Spec *spec;
        const char *name;
    } types[] = {
        { &s->block_type, &calls_block_spec, "Block" },
        { &s->heap_type, &calls_heap_spec, "Heap" },
        { &s->call_type, &calls_call_spec, "Call" },
        { &s->finder_type, &calls_finder_spec, "Finder" },
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if ((*types[i].of = PyType_FromModuleAndSpec(module, types[i].spec, NULL)) == NULL
            || PyObject_SetAttrString(module, types[i].name, *types[i].of) != 0)
            return -1;
    struct {
        PyObject **of;
        const char *text;
    } texts[] = {
        { &s->name_handle, "handle" },
        { &s->name_address, "address" },
        { &s->name_dict, "__dict__" },
        { &s->name_level, "LEVEL" },
        { &s->name_name, "name" },
        { &s->name_out, "out" },
        { &s->name_facts, "facts" },
        { &s->name_writable, "writable" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if ((*texts[i].of = PyUnicode_InternFromString(texts[i].text)) == NULL)
            return -1;
    s->zero = PyLong_FromLong(0);
    return s->zero == NULL || PyModule_AddIntConstant(module, "TENSORS", CALLS_TENSORS) != 0
            || PyModule_AddIntConstant(module, "OUTPUTS", CALLS_OUTPUTS) != 0
        ? -1
        : 0;
}

static PyMethodDef functions[] = {
    { "use", (PyCFunction)(void (*)(void))use, METH_VARARGS | METH_KEYWORDS, "Tell the module core's classes, once." },
    { NULL, NULL, 0, NULL },
};

static PyModuleDef_Slot slots[] = { { Py_mod_exec, start }, { 0, NULL } };

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_calls",
    "Eager calls that were made before, found and made in C.",
    sizeof(state),
    functions,
    slots,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__calls(void) { return PyModuleDef_Init(&definition); }
