/* The driver, found at run time: neither its headers nor its library are needed to build. */

#include <dlfcn.h>

typedef int (*Launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned shared, void *stream, void **parameters, void **extra);
/* `CUlaunchAttribute` and `CUlaunchConfig` of cuda.h. */
typedef struct {
  int id;
  union {
    int on;
    unsigned sizes[3];
    uint64_t room[8];
  } value;
} Attribute;

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  Attribute *attributes;
  unsigned count;
} Configuration;

enum { COOPERATIVE = 2, CLUSTER = 4, SCHEDULING = 5, DEPENDENT = 6 }; /* ids of attributes */
enum { SPREAD = 1 };

typedef int (*LaunchWith)(const Configuration *, void *function, void **parameters, void **extra);
typedef int (*EncodeTiled)(void *map, int dtype, uint32_t rank, void *address, const uint64_t *shape,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int promotion, int fill);
typedef int (*CurrentContext)(void **context);
typedef int (*ErrorText)(int code, const char **text);
typedef int (*IsCapturing)(void *stream, int *status);

static struct {
  Launch launch;
  LaunchWith launch_with;
  EncodeTiled encode;
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
  driver.launch_with = (LaunchWith)dlsym(handle, "cuLaunchKernelEx");
  driver.encode = (EncodeTiled)dlsym(handle, "cuTensorMapEncodeTiled");
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

/* Makes the 128 bytes by which the copy engine finds a tensor; the driver's axes go the other way. */
static Outcome driver_encode(const Described *one, const Descriptor *given_as, void *map) {
  enum { TO_L2_BY_128_BYTES = 2 };
  static const uint32_t STEPS[MOST_RANK] = {1, 1, 1, 1, 1};
  uint64_t shape[MOST_RANK], strides[MOST_RANK];
  uint32_t box[MOST_RANK];
  int rank = one->rank;
  for (int i = 0; i < rank; i++) {
    int from = rank - 1 - i;
    shape[i] = (uint64_t)given_as->shape[from] << (one->shared_bytes && from == rank - 1);
    box[i] = (uint32_t)one->box[from];
    if (from) strides[i] = (uint64_t)given_as->strides[from - 1] * (uint64_t)one->element;
  }
  int code = driver.encode
                 ? driver.encode(map, one->dtype, (uint32_t)rank, (void *)(uintptr_t)given_as->pointer, shape, strides,
                                 box, STEPS, 0, one->swizzle, TO_L2_BY_128_BYTES, given_as->padded != 0)
                 : -1;
  return code == 0 ? USUAL : UNUSUAL; /* Triton's own launch says what is wrong */
}

static int launch_with_attributes(const Plan *plan, const long long *grid, uint64_t stream, void **parameters) {
  Attribute attributes[4];
  Configuration made = {
      .grid = {(unsigned)grid[0] * plan->cluster, (unsigned)grid[1], (unsigned)grid[2]},
      .block = {plan->threads, 1, 1},
      .shared = plan->shared,
      .stream = (void *)(uintptr_t)stream,
      .attributes = attributes,
  };
  if (plan->dependent) attributes[made.count++] = (Attribute){DEPENDENT, {.on = 1}};
  if (plan->cooperative) attributes[made.count++] = (Attribute){COOPERATIVE, {.on = 1}};
  if (plan->cluster > 1) {
    attributes[made.count++] = (Attribute){CLUSTER, {.sizes = {plan->cluster, 1, 1}}};
    attributes[made.count++] = (Attribute){SCHEDULING, {.on = SPREAD}};
  }
  return driver.launch_with(&made, (void *)(uintptr_t)plan->function, parameters, NULL);
}

static bool has_attributes(const Plan *plan) {
  return plan->dependent || plan->cooperative || plan->cluster > 1;
}

static int driver_launch(const Plan *plan, const long long *grid, uint64_t stream, void **parameters) {
  int code;
  /* A full queue makes the driver wait: other threads go on meanwhile. */
  Py_BEGIN_ALLOW_THREADS;
  if (has_attributes(plan))
    code = launch_with_attributes(plan, grid, stream, parameters);
  else
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
