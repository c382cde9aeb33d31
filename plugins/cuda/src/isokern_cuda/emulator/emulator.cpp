/* The emulated GPU of `isokern-gpu` as one translation unit: most of the compile time is the standard library's. */
#include "program.cpp"
#include "schedule.cpp"
#include "check.cpp"
#include "report.cpp"
#include "runtime.cpp"
#include "libraries.cpp"
