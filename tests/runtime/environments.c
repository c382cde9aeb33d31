/* A library with which hostile_caller.py and test_environment.py enter floating-point environments. */
#include "environments.h"

uint32_t environment_take_on(const char *name) { return take_on(name); }
uint32_t environment_registers(void) { return registers(); }
uint32_t environment_computing(void) { return computing(); }
