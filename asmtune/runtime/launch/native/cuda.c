/* The driver, found at run time: neither its headers nor its library are needed to build. */

#include <dlfcn.h>

typedef int (*Launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned shared, void *stream, void **parameters, void **extra);
typedef int (*CurrentContext)(void **context);
typedef int (*ErrorText)(int code, const char **text);
typedef int (*IsCapturing)(void *stream, int *status);

static struct {
  Launch launch;
  CurrentContext current_context;
  ErrorText error_text;
  IsCapturing is_capturing;
} driver;

static int driver_open(const char *library) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    PyErr_Format(PyExc_OSError, "%s cannot be loaded: %s", library, dlerror());
    return -1;
  }
  driver.launch = (Launch)dlsym(handle, "cuLaunchKernel");
  driver.current_context = (CurrentContext)dlsym(handle, "cuCtxGetCurrent");
  driver.error_text = (ErrorText)dlsym(handle, "cuGetErrorString");
  driver.is_capturing = (IsCapturing)dlsym(handle, "cuStreamIsCapturing");
  if (!driver.launch || !driver.current_context || !driver.error_text) {
    PyErr_Format(PyExc_OSError, "%s lacks cuLaunchKernel, cuCtxGetCurrent or cuGetErrorString", library);
    return -1;
  }
  return 0;
}

/* A thread that never used CUDA has no context; Triton's launch gives it one. */
static bool driver_ready(void) {
  void *context = NULL;
  return driver.launch && driver.current_context(&context) == 0 && context;
}

/* Whether a stream is, or may be, being captured into a graph. */
static bool driver_capturing(uint64_t stream) {
  int status = 1;
  return !driver.is_capturing || driver.is_capturing((void *)(uintptr_t)stream, &status) || status;
}

static int driver_launch(const Plan *plan, const long long *grid, uint64_t stream, uint64_t *packed) {
  void *parameters[MOST_PARAMETERS + 2];
  for (int i = 0; i < plan->slot_count; i++) parameters[i] = &packed[i];
  int code;
  /* A full queue makes the driver wait: other threads go on meanwhile. */
  Py_BEGIN_ALLOW_THREADS;
  code = driver.launch((void *)(uintptr_t)plan->function, (unsigned)grid[0], (unsigned)grid[1],
                       (unsigned)grid[2], plan->threads, 1, 1, plan->shared, (void *)(uintptr_t)stream,
                       parameters, NULL);
  Py_END_ALLOW_THREADS;
  if (code == 0) return 0;
  const char *text = NULL;
  driver.error_text(code, &text);
  PyErr_Format(PyExc_RuntimeError, "Triton Error [CUDA]: %s", text ? text : "unknown error");
  return -1;
}
