/* The record of a call that was made before; call.c makes it again, call_type.c makes the record. */
#ifndef ISOKERN_CALL_H
#define ISOKERN_CALL_H
#include "state.h"

typedef int32_t (*run_plan)(const void *plan, const void *data, void *space, uint64_t bytes, void *stream);

/* What an output is made of, borrowed from the call's `outputs`. */
typedef struct output {
    PyObject *desc, *facts, *dtype, *nbytes, *allocate;
    uint64_t size;
} output;

/* A kernel that runs, and which of the call's tensors it has: -1 is the workspace, -2 an absent one. */
typedef struct step {
    run_plan run;
    const void *plan;
    PyObject *fail; /* raises the error of a status; it keeps the plan */
    Py_ssize_t count;
    int8_t places[CALLS_TENSORS];
} step;

struct call {
    PyObject_VAR_HEAD state *state;
    heap *heap;
    PyObject *module, *memory, *fallback, *scratch, *need, *given_steps, *setting, *outputs, *facts;
    PyObject *running, *default_stream; /* a function that returns the stream that the thread uses; the device's own */
    const char *setting_text; /* the text of `setting`; null for none */
    void *stream;
    uint64_t bytes; /* of workspace */
    int into; /* whether a tensor is given for the output */
    uint32_t aliases; /* a bit for each input that this may be */
    Py_ssize_t output_count, input_count, step_count;
    output made[CALLS_OUTPUTS];
    step steps[];
};

PyObject *calls_run_fallback(const call *c, PyObject *const *given, Py_ssize_t count, PyObject *out);
#endif
