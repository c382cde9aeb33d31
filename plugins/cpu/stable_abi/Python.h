/* The part of Python's stable ABI (PEP 384) that the cffi extension uses, for machines that have Python and a compiler
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
typedef struct _ts PyThreadState;
typedef ssize_t Py_ssize_t;

#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *

extern struct _object _Py_NoneStruct;
#define Py_None ((PyObject *)&_Py_NoneStruct)

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

#endif
