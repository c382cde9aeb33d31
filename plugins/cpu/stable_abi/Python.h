/* The part of Python's stable ABI (PEP 384) that the extensions use, for machines that have Python and a compiler
 * but not Python's headers.
 *
 * Debian's python3-venv and gcc do not install Python.h. These declarations hold for every Python from 3.10 on: that is
 * what the stable ABI promises. setup.py puts this folder on the include path only where the real header is missing. */
#ifndef Py_PYTHON_H
#define Py_PYTHON_H
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#ifndef Py_LIMITED_API
#error "these are the declarations of the stable ABI only"
#endif

typedef struct _object PyObject;
typedef struct _typeobject PyTypeObject;
typedef struct _ts PyThreadState;
typedef ssize_t Py_ssize_t;

#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *

extern struct _object _Py_NoneStruct;
#define Py_None ((PyObject *)&_Py_NoneStruct)
extern struct _object _Py_TrueStruct;
#define Py_True ((PyObject *)&_Py_TrueStruct)

void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);
#define Py_INCREF(o) Py_IncRef((PyObject *)(o))
#define Py_DECREF(o) Py_DecRef((PyObject *)(o))
#define Py_XDECREF(o) Py_DecRef((PyObject *)(o)) /* Py_DecRef accepts null */

PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *);
#define Py_BEGIN_ALLOW_THREADS \
    { \
        PyThreadState *_save = PyEval_SaveThread();
#define Py_END_ALLOW_THREADS \
    PyEval_RestoreThread(_save); \
    }

void *PyObject_Malloc(size_t);
void PyObject_Free(void *);
PyObject *PyObject_CallMethod(PyObject *, const char *, const char *, ...);
PyObject *PyImport_ImportModule(const char *);
int PyArg_UnpackTuple(PyObject *, const char *, Py_ssize_t, Py_ssize_t, ...);
PyObject *PyErr_Occurred(void);
__attribute__((noreturn)) void Py_FatalError(const char *);

PyObject *PyBool_FromLong(long);
PyObject *PyFloat_FromDouble(double);
double PyFloat_AsDouble(PyObject *);
PyObject *PyLong_FromLong(long);
PyObject *PyLong_FromLongLong(long long);
PyObject *PyLong_FromUnsignedLong(unsigned long);
PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
PyObject *PyLong_FromVoidPtr(void *);

/* What `_calls` uses besides: types and modules of its own, and the objects that it looks at. */
struct _object {
    Py_ssize_t ob_refcnt;
    PyTypeObject *ob_type;
};
#define PyObject_HEAD struct _object ob_base;
#define PyObject_VAR_HEAD \
    struct { \
        struct _object ob_base; \
        Py_ssize_t ob_size; \
    } ob_base;
#define Py_TYPE(o) (((PyObject *)(o))->ob_type)
#define Py_XINCREF(o) Py_IncRef((PyObject *)(o)) /* Py_IncRef accepts null */
#define Py_CLEAR(o) \
    do { \
        PyObject *_old = (PyObject *)(o); \
        (o) = NULL; \
        Py_DecRef(_old); \
    } while (0)
#define Py_RETURN_NONE return Py_IncRef(Py_None), Py_None
#define PY_SSIZE_T_MAX ((Py_ssize_t)(((size_t)-1) >> 1))

typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef PyObject *(*descrgetfunc)(PyObject *, PyObject *, PyObject *);
typedef int (*descrsetfunc)(PyObject *, PyObject *, PyObject *);
typedef int (*visitproc)(PyObject *, void *);

#define Py_VISIT(o) \
    do { \
        int _visited = (o) == NULL ? 0 : visit((PyObject *)(o), arg); \
        if (_visited) \
            return _visited; \
    } while (0)

enum { METH_VARARGS = 1, METH_KEYWORDS = 2, METH_NOARGS = 4, METH_O = 8, METH_FASTCALL = 0x80 };
enum { Py_TPFLAGS_DEFAULT = 0, Py_TPFLAGS_DISALLOW_INSTANTIATION = 1 << 7, Py_TPFLAGS_HAVE_GC = 1 << 14 };
enum {
    Py_nb_index = 13,
    Py_nb_int = 26,
    Py_tp_call = 50,
    Py_tp_dealloc = 52,
    Py_tp_descr_get = 54,
    Py_tp_descr_set = 55,
    Py_tp_doc = 56,
    Py_tp_methods = 64,
    Py_tp_new = 65,
    Py_tp_traverse = 71,
    Py_tp_getset = 73,
};
enum { Py_mod_exec = 2 };

typedef struct PyMethodDef {
    const char *ml_name;
    PyCFunction ml_meth;
    int ml_flags;
    const char *ml_doc;
} PyMethodDef;

typedef struct PyGetSetDef {
    const char *name;
    PyObject *(*get)(PyObject *, void *);
    int (*set)(PyObject *, PyObject *, void *);
    const char *doc;
    void *closure;
} PyGetSetDef;

typedef struct {
    int slot;
    void *pfunc;
} PyType_Slot;

typedef struct {
    const char *name;
    int basicsize, itemsize;
    unsigned int flags;
    PyType_Slot *slots;
} PyType_Spec;

typedef struct PyModuleDef_Slot {
    int slot;
    void *value;
} PyModuleDef_Slot;

typedef struct PyModuleDef {
    struct {
        struct _object ob_base;
        PyObject *(*m_init)(void);
        Py_ssize_t m_index;
        PyObject *m_copy;
    } m_base;
    const char *m_name, *m_doc;
    Py_ssize_t m_size;
    PyMethodDef *m_methods;
    PyModuleDef_Slot *m_slots;
    int (*m_traverse)(PyObject *, visitproc, void *);
    int (*m_clear)(PyObject *);
    void (*m_free)(void *);
} PyModuleDef;
#define PyModuleDef_HEAD_INIT { { 1, NULL }, NULL, 0, NULL }

extern PyTypeObject PyDict_Type, PyList_Type, PyTuple_Type, PyType_Type;
extern PyObject *PyExc_AttributeError, *PyExc_Exception, *PyExc_RuntimeError, *PyExc_SystemError, *PyExc_TypeError,
    *PyExc_ValueError;

PyObject *PyModuleDef_Init(PyModuleDef *);
void *PyModule_GetState(PyObject *);
int PyModule_AddIntConstant(PyObject *, const char *, long);
PyObject *PyType_FromModuleAndSpec(PyObject *, PyType_Spec *, PyObject *);
PyObject *PyType_GenericAlloc(PyTypeObject *, Py_ssize_t);
PyObject *PyType_GetModule(PyTypeObject *);
void *PyType_GetSlot(PyTypeObject *, int);
PyObject *_PyObject_New(PyTypeObject *);
#define PyObject_New(type, of) ((type *)_PyObject_New(of))
void PyObject_GC_Del(void *);
void PyObject_GC_UnTrack(void *);

int PyArg_ParseTuple(PyObject *, const char *, ...);
int PyArg_ParseTupleAndKeywords(PyObject *, PyObject *, const char *, char **, ...);
PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *);
PyObject *PyObject_CallFunction(PyObject *, const char *, ...);
PyObject *PyObject_CallFunctionObjArgs(PyObject *, ...);
PyObject *PyObject_CallObject(PyObject *, PyObject *);
PyObject *PyObject_GetAttr(PyObject *, PyObject *);
PyObject *PyObject_GetAttrString(PyObject *, const char *);
int PyObject_SetAttrString(PyObject *, const char *, PyObject *);

PyObject *PyDict_GetItemWithError(PyObject *, PyObject *);
int PyDict_Next(PyObject *, Py_ssize_t *, PyObject **, PyObject **);
Py_ssize_t PyDict_Size(PyObject *);
PyObject *PyList_GetItem(PyObject *, Py_ssize_t);
Py_ssize_t PyList_Size(PyObject *);
long PyLong_AsLong(PyObject *);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
PyObject *PyNumber_Add(PyObject *, PyObject *);
PyObject *PySequence_Tuple(PyObject *);
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
PyObject *PyTuple_New(Py_ssize_t);
PyObject *PyTuple_Pack(Py_ssize_t, ...);
int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
Py_ssize_t PyTuple_Size(PyObject *);
const char *PyUnicode_AsUTF8AndSize(PyObject *, Py_ssize_t *);
PyObject *PyUnicode_InternFromString(const char *);

void PyErr_Clear(void);
int PyErr_ExceptionMatches(PyObject *);
void PyErr_Fetch(PyObject **, PyObject **, PyObject **);
PyObject *PyErr_Format(PyObject *, const char *, ...);
PyObject *PyErr_NoMemory(void);
void PyErr_Restore(PyObject *, PyObject *, PyObject *);
void PyErr_SetString(PyObject *, const char *);

#endif
