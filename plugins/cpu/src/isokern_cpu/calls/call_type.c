/* The type Call: how one is made from what a descriptor knows, and how Python calls it. */
#include "call.h"

static int read_output(output *o, PyObject *given)
{
    if (!is_exactly(given, (PyObject *)&PyTuple_Type) || PyTuple_Size(given) != 5) {
        PyErr_SetString(PyExc_TypeError, "an output is (desc, facts, dtype, nbytes, function or None)");
        return -1;
    }
    o->desc = PyTuple_GetItem(given, 0);
    o->facts = PyTuple_GetItem(given, 1);
    o->dtype = PyTuple_GetItem(given, 2);
    o->nbytes = PyTuple_GetItem(given, 3);
    o->allocate = PyTuple_GetItem(given, 4);
    o->size = PyLong_AsUnsignedLongLong(o->nbytes);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_step(step *s, PyObject *given, Py_ssize_t tensors)
{
    unsigned long long run, plan;
    PyObject *fail, *places;
    if (!is_exactly(given, (PyObject *)&PyTuple_Type)
        || !PyArg_ParseTuple(given, "KKO!O", &run, &plan, &PyTuple_Type, &places, &fail)) {
        PyErr_SetString(PyExc_TypeError, "a step is (run, plan, places, fail)");
        return -1;
    }
    s->run = (run_plan)(uintptr_t)run;
    s->plan = (const void *)(uintptr_t)plan;
    s->fail = fail;
    s->count = PyTuple_Size(places);
    if (s->count > CALLS_TENSORS) {
        PyErr_Format(PyExc_ValueError, "%zd tensors of a step; allowed: %d", s->count, (int)CALLS_TENSORS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < s->count; i++) {
        const long place = PyLong_AsLong(PyTuple_GetItem(places, i));
        if (PyErr_Occurred())
            return -1;
        if (place < -2 || place >= tensors) {
            PyErr_Format(PyExc_ValueError, "place %ld of %zd tensors", place, tensors);
            return -1;
        }
        s->places[i] = (int8_t)place;
    }
    return 0;
}

static PyObject *new_call(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = { "steps", "outputs", "facts", "bytes", "stream", "setting", "heap", "memory", "fallback",
        "scratch", "need", "aliases", "running", "default_stream", NULL };
    unsigned long long bytes, stream;
    PyObject *steps, *outputs, *setting, *heap_given, *memory, *fallback, *scratch, *need,
        *module = PyType_GetModule(type);
    PyObject *facts, *running, *default_stream;
    long long aliases; /* -1 where the outputs are to be made */
    if (module == NULL)
        return NULL;
    const state *s = PyModule_GetState(module);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!KKOO!OOOOLOO", names, &PyTuple_Type, &steps, &PyTuple_Type,
            &outputs, &PyTuple_Type, &facts, &bytes, &stream, &setting, s->heap_type, &heap_given, &memory, &fallback,
            &scratch, &need, &aliases, &running, &default_stream))
        return NULL;
    const Py_ssize_t made = PyTuple_Size(outputs), count = PyTuple_Size(steps), inputs = PyTuple_Size(facts);
    if (s->tensor == NULL || made < 1 || made > CALLS_OUTPUTS || inputs + made > CALLS_TENSORS
        || (aliases >= 0 && made != 1)) {
        PyErr_Format(PyExc_ValueError, "%zd outputs and %zd inputs; allowed: %d and in all %d, once `use` was called",
            made, inputs, (int)CALLS_OUTPUTS, (int)CALLS_TENSORS);
        return NULL;
    }
    call *c = (call *)PyType_GenericAlloc(type, count);
    if (c == NULL)
        return NULL;
    c->state = PyModule_GetState(module);
    c->heap = (heap *)own(heap_given);
    PyObject *all[] = { module, memory, fallback, scratch, need, steps, setting, outputs, facts, running,
        default_stream };
    PyObject **fields[] = { &c->module, &c->memory, &c->fallback, &c->scratch, &c->need, &c->given_steps, &c->setting,
        &c->outputs, &c->facts, &c->running, &c->default_stream };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *fields[i] = own(all[i]);
    c->stream = (void *)(uintptr_t)stream;
    c->bytes = bytes;
    c->input_count = inputs;
    c->output_count = made;
    c->step_count = count;
    c->into = aliases >= 0;
    c->aliases = c->into ? (uint32_t)aliases : 0;
    int failed = setting != Py_None && (c->setting_text = PyUnicode_AsUTF8AndSize(setting, NULL)) == NULL;
    for (Py_ssize_t i = 0; !failed && i < made; i++)
        failed = read_output(&c->made[i], PyTuple_GetItem(outputs, i)) != 0;
    for (Py_ssize_t i = 0; !failed && i < count; i++)
        failed = read_step(&c->steps[i], PyTuple_GetItem(steps, i), inputs + made) != 0;
    if (!failed)
        return (PyObject *)c;
    Py_DECREF(c);
    return NULL;
}

/* No type here has a tp_clear: a cycle through one of its objects goes on through a dict (a table of calls, a memory's
 * attributes) or a function's cell, which the collector clears. An object that C still runs stays whole so. */
static int traverse_call(PyObject *self, visitproc visit, void *arg)
{
    const call *c = (const call *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(c->module);
    Py_VISIT(c->heap);
    Py_VISIT(c->memory);
    Py_VISIT(c->fallback);
    Py_VISIT(c->scratch);
    Py_VISIT(c->need);
    Py_VISIT(c->given_steps);
    Py_VISIT(c->outputs);
    Py_VISIT(c->facts);
    Py_VISIT(c->running);
    Py_VISIT(c->default_stream);
    return 0;
}

static void drop_call(PyObject *self)
{
    call *c = (call *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    PyObject *all[] = { c->module, (PyObject *)c->heap, c->memory, c->fallback, c->scratch, c->need, c->given_steps,
        c->setting, c->outputs, c->facts, c->running, c->default_stream };
    for (size_t i = sizeof all / sizeof *all; i-- > 0;)
        Py_XDECREF(all[i]);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* Whether a value is None or a tensor, of a subclass perhaps, such as the call was made for. */
static int has_facts(const state *s, PyObject *given, PyObject *expected)
{
    if (given == Py_None)
        return expected == Py_None;
    PyObject *facts =
        is_exactly(given, s->tensor) ? get_slot(&s->facts, given) : PyObject_GetAttr(given, s->name_facts);
    if (facts == NULL)
        PyErr_Clear();
    Py_XDECREF(facts);
    return facts == expected;
}

/* Call the object from Python, with a sequence of its inputs. */
static PyObject *call_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *inputs, *given[CALLS_TENSORS], *result = NULL, *out = NULL;
    if (kwargs != NULL || !PyArg_ParseTuple(args, "O|O", &inputs, &out)) {
        PyErr_SetString(PyExc_TypeError, "a call takes one sequence of tensors, and perhaps one for the output");
        return NULL;
    }
    PyObject *tensors = PySequence_Tuple(inputs);
    if (tensors == NULL)
        return NULL;
    call *c = (call *)self;
    const Py_ssize_t count = PyTuple_Size(tensors);
    int fits = count <= c->input_count && c->into == (out != NULL)
        && (out == NULL || (out != Py_None && has_facts(c->state, out, c->made[0].facts)));
    int exact = out == NULL || is_exactly(out, c->state->tensor);
    for (Py_ssize_t i = 0; fits && i < c->input_count; i++) {
        given[i] = i < count ? PyTuple_GetItem(tensors, i) : Py_None;
        fits = has_facts(c->state, given[i], PyTuple_GetItem(c->facts, i));
        exact &= given[i] == Py_None || is_exactly(given[i], c->state->tensor);
    }
    if (!fits)
        PyErr_SetString(PyExc_TypeError, "the call was made for other tensors");
    else
        result = exact ? calls_run(c, given, count, out) : calls_run_fallback(c, given, count, out);
    Py_DECREF(tensors);
    return result;
}

static PyType_Slot call_slots[] = {
    { Py_tp_doc, "A call that was made before, as a function of a sequence of its inputs." },
    { Py_tp_new, new_call },
    { Py_tp_dealloc, drop_call },
    { Py_tp_traverse, traverse_call },
    { Py_tp_call, call_call },
    { 0, NULL },
};

PyType_Spec calls_call_spec = { "isokern_cpu._calls.Call", sizeof(call), sizeof(step),
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, call_slots };
