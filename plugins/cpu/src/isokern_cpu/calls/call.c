/* Call: a call that was made before, as a function of its tensors: outputs from the heap, and the kernels. Whatever is
 * not usual (a closed buffer, another stream, a recording, no memory left) it leaves to the slow way, in Python. */
#include "call.h"

#include <stdlib.h>

/* Whether the slow way would find nothing unusual, which else says what is wrong; -1 with an error. */
static int is_usual(const call *c)
{
    const state *s = c->state;
    if (c->setting_text != NULL && getenv(c->setting_text) != NULL) /* which os.environ writes, too */
        return 0;
    PyObject *given = PyDict_GetItemWithError(s->debug, s->name_level);
    const long level = given == NULL ? 2 : PyLong_AsLong(given);
    if (level == -1 && PyErr_Occurred()) { /* it is no integer, which Python's comparison may take */
        PyErr_Clear();
        return 0;
    }
    if (level >= 2)
        return 0;
    PyObject *streams = PyObject_GetAttr(s->current, s->name_dict);
    const Py_ssize_t count = streams == NULL ? -1 : PyDict_Size(streams);
    Py_XDECREF(streams);
    if (count <= 0)
        return count == 0 ? 1 : -1;
    PyObject *running =
        PyObject_CallObject(c->running, NULL); /* the thread has made a stream current, or captured one */
    const int usual = running == NULL ? -1 : running == c->default_stream;
    Py_XDECREF(running);
    return usual;
}

PyObject *calls_run_fallback(const call *c, PyObject *const *given, Py_ssize_t count, PyObject *out)
{
    PyObject *inputs = PyTuple_New(count);
    if (inputs == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SetItem(inputs, i, own(given[i]));
    PyObject *result = PyObject_CallFunctionObjArgs(c->fallback, inputs, out, NULL);
    Py_DECREF(inputs);
    return result;
}

/* Return the handle of a tensor's memory, and write its address; null with an error where the buffer is closed. */
static PyObject *find_memory(const state *s, PyObject *tensor, uint64_t *address)
{
    PyObject *buffer = get_slot(&s->buffer, tensor);
    if (buffer == NULL)
        return NULL;
    PyObject *handle =
        is_exactly(buffer, s->pooled) ? get_slot(&s->handle, buffer) : PyObject_GetAttr(buffer, s->name_handle);
    Py_DECREF(buffer);
    if (handle != NULL && calls_address(s, handle, address) != 0)
        Py_CLEAR(handle);
    return handle;
}

static PyObject *make_tensor(const state *s, const output *o, PyObject *buffer, PyObject *span)
{
    PyObject *tensor = PyType_GenericAlloc((PyTypeObject *)s->tensor, 0);
    if (tensor != NULL
        && (set_slot(&s->desc, tensor, o->desc) != 0 || set_slot(&s->facts, tensor, o->facts) != 0
            || set_slot(&s->buffer, tensor, buffer) != 0 || set_slot(&s->span, tensor, span) != 0))
        Py_CLEAR(tensor);
    return tensor;
}

/* Return a new tensor of memory of the heap, and the handle that keeps the memory. */
static PyObject *make_pooled(const call *c, const output *o, uint64_t *at, PyObject **memory)
{
    const state *s = c->state;
    PyObject *address, *span, *handle = *memory = calls_take(c->heap, o->size, &address, &span);
    if (handle == NULL)
        return NULL;
    calls_address(s, handle, at);
    PyObject *tensor = NULL, *buffer = PyType_GenericAlloc((PyTypeObject *)s->pooled, 0);
    if (buffer != NULL && set_slot(&s->memory, buffer, c->memory) == 0 && set_slot(&s->nbytes, buffer, o->nbytes) == 0
        && set_slot(&s->element, buffer, o->dtype) == 0 && set_slot(&s->address, buffer, address) == 0
        && set_slot(&s->handle, buffer, handle) == 0)
        tensor = make_tensor(s, o, buffer, span);
    Py_XDECREF(buffer);
    return tensor;
}

/* Return a new tensor of memory that is too large for the heap, and the handle that keeps the memory. */
static PyObject *make_allocated(const call *c, const output *o, uint64_t *at, PyObject **memory)
{
    PyObject *buffer = PyObject_CallObject(o->allocate, NULL), *tensor = NULL;
    *memory = buffer == NULL ? NULL : PyObject_GetAttr(buffer, c->state->name_handle);
    PyObject *address = *memory == NULL ? NULL : PyObject_GetAttr(buffer, c->state->name_address);
    PyObject *end = address == NULL ? NULL : PyNumber_Add(address, o->nbytes);
    PyObject *span = end == NULL ? NULL : PyTuple_Pack(2, address, end);
    if (span != NULL && calls_address(c->state, address, at) == 0)
        tensor = make_tensor(c->state, o, buffer, span);
    Py_XDECREF(span);
    Py_XDECREF(end);
    Py_XDECREF(address);
    Py_XDECREF(buffer);
    return tensor;
}

/* Return the handle of scratch memory for this thread, and write its address. */
static PyObject *find_space(const call *c, uint64_t *space)
{
    PyObject *buffer = PyObject_CallFunctionObjArgs(c->scratch, c->need, NULL);
    PyObject *handle = buffer == NULL ? NULL : PyObject_GetAttr(buffer, c->state->name_handle);
    Py_XDECREF(buffer);
    if (handle != NULL && calls_address(c->state, handle, space) != 0)
        Py_CLEAR(handle);
    return handle;
}

/* Run the kernels, without Python's lock. After one that met a wrong value the others run, too, as `run_all` has them;
 * the first error is raised. */
static int run_steps(const call *c, const uint64_t *data, void *space)
{
    PyObject *kind = NULL, *error = NULL, *trace = NULL;
    Py_ssize_t i = 0;
    while (i < c->step_count) {
        int32_t status = 0;
        const step *at = &c->steps[i];
        PyThreadState *thread = PyEval_SaveThread();
        for (; i < c->step_count && status == 0; i++) {
            uint64_t own_data[CALLS_TENSORS];
            at = &c->steps[i];
            for (Py_ssize_t j = 0; j < at->count; j++)
                own_data[j] = at->places[j] >= 0 ? data[at->places[j]]
                    : at->places[j] == -1        ? (uint64_t)(uintptr_t)space
                                                 : 0;
            status = at->run(at->plan, own_data, space, c->bytes, c->stream);
        }
        PyEval_RestoreThread(thread);
        if (status == 0)
            break;
        PyObject *none = PyObject_CallFunction(at->fail, "i", (int)status);
        Py_XDECREF(none);
        if (none != NULL)
            PyErr_Format(PyExc_SystemError, "status %d raises nothing", (int)status);
        const int goes_on = PyErr_ExceptionMatches(c->state->invalid);
        if (kind == NULL)
            PyErr_Fetch(&kind, &error, &trace);
        else
            PyErr_Clear();
        if (!goes_on)
            break;
    }
    if (kind == NULL)
        return 0;
    PyErr_Restore(kind, error, trace);
    return -1;
}

static PyObject *finish(PyObject **made, Py_ssize_t count)
{
    if (count == 1)
        return made[0];
    PyObject *all = PyTuple_New(count);
    for (Py_ssize_t i = 0; i < count; i++)
        if (all == NULL)
            Py_DECREF(made[i]);
        else
            PyTuple_SetItem(all, i, made[i]);
    return all;
}

/* Write the range of addresses of a tensor; -1 with an error. */
static int read_span(const state *s, PyObject *tensor, uint64_t *low, uint64_t *high)
{
    PyObject *span = get_slot(&s->span, tensor);
    const int failed = span == NULL || calls_address(s, PyTuple_GetItem(span, 0), low) != 0
        || calls_address(s, PyTuple_GetItem(span, 1), high) != 0;
    Py_XDECREF(span);
    return failed ? -1 : 0;
}

/* Whether an input is the output itself, and may be. */
static int is_alias(const call *c, Py_ssize_t i, PyObject *input, PyObject *out)
{
    if ((c->aliases >> i & 1) == 0 || input == out)
        return (int)(c->aliases >> i & 1);
    PyObject *one = get_slot(&c->state->buffer, input), *other = get_slot(&c->state->buffer, out);
    const int same = one == other && PyTuple_GetItem(c->facts, i) == c->made[0].facts;
    Py_XDECREF(one);
    Py_XDECREF(other);
    return same;
}

/* Whether a tensor may be written to, and shares no memory with an input that it may not be; the slow way finds out
 * else what is wrong, or that nothing is. */
static int is_output(const call *c, PyObject *const *given, Py_ssize_t count, PyObject *out)
{
    const state *s = c->state;
    uint64_t low, high, start, end;
    PyObject *buffer = get_slot(&s->buffer, out);
    PyObject *writable = buffer == NULL ? NULL : PyObject_GetAttr(buffer, s->name_writable);
    int fits = writable == Py_True && read_span(s, out, &low, &high) == 0;
    for (Py_ssize_t i = 0; fits && i < count; i++)
        fits = given[i] == Py_None || is_alias(c, i, given[i], out)
            || (read_span(s, given[i], &start, &end) == 0 && (end <= low || high <= start));
    Py_XDECREF(writable);
    Py_XDECREF(buffer);
    return fits;
}

/* Make the call of `count` tensors (None where one is absent), which have the facts that it was made for, as has `out`,
 * which is null where the output is to be made. */
PyObject *calls_run(call *c, PyObject *const *given, Py_ssize_t count, PyObject *out)
{
    uint64_t data[CALLS_TENSORS] = { 0 }, space = 0;
    PyObject *held[CALLS_TENSORS + 1], *made[CALLS_OUTPUTS], *scratch = NULL, *result = NULL;
    Py_ssize_t holds = 0, makes = 0;
    int usual = count > c->input_count || c->into != (out != NULL) ? 0 : is_usual(c);
    if (usual < 0)
        return NULL;
    for (Py_ssize_t i = 0; usual && i < count; i++) {
        if (given[i] == Py_None)
            continue;
        held[holds] = find_memory(c->state, given[i], &data[c->output_count + i]);
        if (held[holds] == NULL)
            usual = 0;
        else
            holds++;
    }
    if (usual && out != NULL) {
        usual = is_output(c, given, count, out) && (held[holds] = find_memory(c->state, out, &data[0])) != NULL;
        holds += usual;
    }
    for (; usual && out == NULL && makes < c->output_count; makes++) {
        const output *o = &c->made[makes];
        PyObject *memory = NULL; /* kept here, too: another thread may close the tensor while the kernels write */
        made[makes] = o->allocate == Py_None ? make_pooled(c, o, &data[makes], &memory)
                                             : make_allocated(c, o, &data[makes], &memory);
        if (memory != NULL)
            held[holds++] = memory;
        if (made[makes] == NULL) {
            usual = 0;
            break;
        }
    }
    if (usual && c->bytes != 0)
        usual = (scratch = find_space(c, &space)) != NULL;
    if (usual && run_steps(c, data, (void *)(uintptr_t)space) == 0)
        result = out != NULL ? own(out) : finish(made, makes);
    else {
        while (makes > 0)
            Py_DECREF(made[--makes]);
        if (!usual && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) /* no KeyboardInterrupt */
            PyErr_Clear();
        if (!usual && !PyErr_Occurred())
            result = calls_run_fallback(c, given, count, out);
    }
    Py_XDECREF(scratch);
    while (holds > 0)
        Py_DECREF(held[--holds]);
    return result;
}
