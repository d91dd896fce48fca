/* A plan: a compiled kernel on one device, and how a launch's arguments go into it.
 *
 *     Plan(function, threads, shared, slots, values, kernel, config, guards, relay, between, hook, chosen,
 *          scratch=0)
 *
 * function: the driver's handle; 0 where `relay` launches. threads, shared: of a program.
 * slots: (kind, index, constant) of each of the kernel's own parameters.
 * values: of each of the function's parameters that the launch itself does not give;
 *   the parameter itself is GIVEN where it does.
 * kernel: what a launch returns. config: what it ran with.
 * guards: (dict, name, expected) that must hold still, expected GIVEN for "absent".
 * relay, between: Triton's own launcher, and what it takes between the stream and the
 *   function's parameters.
 * hook, chosen: None, or what is called before each launch with the values by name, and the
 *   config's own values among them.
 * scratch: bytes of memory that each program asks for: a launch goes by the relay, which gives it.
 *
 * While `counting`, a plan has the number of its launches, the host's time before those that follow another
 * at once, and the host's time in the quickest: in others a full queue may wait for the GPU.
 */

#include <time.h>

typedef enum { POINTER, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, KINDS } Kind;

typedef struct {
  int kind;
  int index;         /* of the argument; -1: the constant */
  uint64_t constant; /* as the kernel reads it */
} Slot;

typedef struct {
  PyObject_HEAD
  uint64_t function;
  unsigned threads, shared, scratch;
  int slot_count;
  Slot slots[MOST_PARAMETERS + 2]; /* Triton's two scratch pointers behind the kernel's */
  PyObject *values, *kernel, *config, *guards, *relay, *between, *hook, *chosen;
  unsigned long long launches, followed, before_ns, quickest_ns;
} Plan;

static PyObject *given; /* a sentinel: "the launch gives it", "not there" */

static const int64_t LOWEST[KINDS] = {0, INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN, 0, 0, 0, 0, 0, 0};
static const int64_t HIGHEST[KINDS] = {0,          INT8_MAX,   INT16_MAX, INT32_MAX, INT64_MAX, UINT8_MAX,
                                       UINT16_MAX, UINT32_MAX, INT64_MAX, 0,         0};

/* A scalar as the kernel reads it: little-endian, in the low bytes. */
static Outcome pack(int kind, PyObject *value, uint64_t *packed) {
  *packed = 0;
  if (kind == F32 || kind == F64) {
    double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) {
      PyErr_Clear();
      return UNUSUAL;
    }
    if (kind == F64) {
      memcpy(packed, &number, sizeof number);
    } else {
      float narrow = (float)number;
      memcpy(packed, &narrow, sizeof narrow);
    }
    return USUAL;
  }
  if (!PyLong_Check(value)) return UNUSUAL;
  int overflow;
  int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow || number < LOWEST[kind] || number > HIGHEST[kind]) return UNUSUAL;
  *packed = (uint64_t)number;
  return USUAL;
}

static int read_slots(Plan *plan, PyObject *slots) {
  Py_ssize_t count = PyTuple_GET_SIZE(slots);
  if (count > MOST_PARAMETERS + 2) {
    PyErr_SetString(PyExc_ValueError, "a plan has too many slots");
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    Slot *slot = &plan->slots[i];
    PyObject *constant;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(slots, i), "iiO", &slot->kind, &slot->index, &constant)) return -1;
    if (slot->kind < 0 || slot->kind >= KINDS || slot->index >= MOST_PARAMETERS) {
      PyErr_SetString(PyExc_ValueError, "a slot of a plan is of no kind");
      return -1;
    }
    if (slot->index >= 0 || slot->kind == POINTER) continue; /* a constant pointer is null */
    if (pack(slot->kind, constant, &slot->constant) != USUAL) {
      PyErr_Format(PyExc_ValueError, "%R does not fit slot %zd of a plan", constant, i);
      return -1;
    }
  }
  plan->slot_count = (int)count;
  return 0;
}

static void Plan_dealloc(Plan *plan) {
  PyObject_GC_UnTrack(plan);
  Py_XDECREF(plan->values);
  Py_XDECREF(plan->kernel);
  Py_XDECREF(plan->config);
  Py_XDECREF(plan->guards);
  Py_XDECREF(plan->relay);
  Py_XDECREF(plan->between);
  Py_XDECREF(plan->hook);
  Py_XDECREF(plan->chosen);
  Py_TYPE(plan)->tp_free(plan);
}

static int Plan_traverse(Plan *plan, visitproc visit, void *arg) {
  Py_VISIT(plan->values);
  Py_VISIT(plan->kernel);
  Py_VISIT(plan->config);
  Py_VISIT(plan->guards);
  Py_VISIT(plan->relay);
  Py_VISIT(plan->between);
  Py_VISIT(plan->hook);
  Py_VISIT(plan->chosen);
  return 0;
}

static PyObject *Plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  unsigned long long function;
  unsigned threads, shared, scratch = 0;
  PyObject *slots, *values, *kernel, *config, *guards, *relay, *between, *hook, *chosen;
  if (kwargs && PyDict_GET_SIZE(kwargs)) {
    PyErr_SetString(PyExc_TypeError, "Plan takes no keywords");
    return NULL;
  }
  if (!PyArg_ParseTuple(args, "KIIO!O!OOO!OO!OO!|I", &function, &threads, &shared, &PyTuple_Type, &slots,
                        &PyTuple_Type, &values, &kernel, &config, &PyTuple_Type, &guards, &relay, &PyTuple_Type, &between, &hook, &PyDict_Type, &chosen, &scratch))
    return NULL;
  Plan *plan = (Plan *)type->tp_alloc(type, 0);
  if (!plan) return NULL;
  plan->function = function;
  plan->threads = threads;
  plan->shared = shared;
  plan->scratch = scratch;
  plan->values = Py_NewRef(values);
  plan->kernel = Py_NewRef(kernel);
  plan->config = Py_NewRef(config);
  plan->guards = Py_NewRef(guards);
  plan->relay = Py_NewRef(relay);
  plan->between = Py_NewRef(between);
  plan->hook = hook == Py_None ? NULL : Py_NewRef(hook);
  plan->chosen = Py_NewRef(chosen);
  if (read_slots(plan, slots) < 0) {
    Py_DECREF(plan);
    return NULL;
  }
  return (PyObject *)plan;
}

/* Whether names of dicts still stand for the objects that they stood for. */
static bool dicts_hold(PyObject *guards) {
  Py_ssize_t count = PyTuple_GET_SIZE(guards);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *guard = PyTuple_GET_ITEM(guards, i);
    PyObject *now = PyDict_GetItem(PyTuple_GET_ITEM(guard, 0), PyTuple_GET_ITEM(guard, 1));
    PyObject *expected = PyTuple_GET_ITEM(guard, 2);
    if (now != (expected == given ? NULL : expected)) return false;
  }
  return true;
}

/* Whether everything that Triton would look at again is as it was. */
static bool guards_hold(const Plan *plan) { return dicts_hold(plan->guards); }

/* A longer pause is of something else: of tuning, of reading data, of waiting for the GPU. */
enum { LONGEST_PAUSE_NS = 1000000 };

static bool counting;
static int64_t ended_ns; /* the end of the last launch of any plan */

/* 0 while nothing is counted. */
static int64_t count_from(void) {
  struct timespec now = {0, 0};
  if (counting) clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void count_launch(Plan *plan, int64_t began) {
  int64_t ended = count_from(), before = began - ended_ns;
  if (!began || !ended) return;
  plan->launches++;
  if (before >= 0 && before < LONGEST_PAUSE_NS) {
    plan->followed++;
    plan->before_ns += (uint64_t)before;
  }
  uint64_t own_ns = (uint64_t)(ended - began);
  if (plan->launches == 1 || own_ns < plan->quickest_ns) plan->quickest_ns = own_ns;
  ended_ns = ended;
}

static PyObject *Plan_count(PyObject *Py_UNUSED(nothing), PyObject *on) {
  counting = PyObject_IsTrue(on) == 1;
  Py_RETURN_NONE;
}

static PyMethodDef Plan_methods[] = {
    {"count", (PyCFunction)Plan_count, METH_O | METH_STATIC, "count(on): whether all plans count their launches."},
    {NULL, NULL, 0, NULL}};

static PyMemberDef Plan_members[] = {
    {"launches", T_ULONGLONG, offsetof(Plan, launches), READONLY, "Launches that were counted."},
    {"followed", T_ULONGLONG, offsetof(Plan, followed), READONLY, "Those that followed another launch at once."},
    {"before_ns", T_ULONGLONG, offsetof(Plan, before_ns), READONLY, "The host's time before these, in sum."},
    {"quickest_ns", T_ULONGLONG, offsetof(Plan, quickest_ns), READONLY, "The host's time in the quickest launch."},
    {"kernel", T_OBJECT_EX, offsetof(Plan, kernel), READONLY, "What a launch returns."},
    {"config", T_OBJECT_EX, offsetof(Plan, config), READONLY, "What it runs with."},
    {"values", T_OBJECT_EX, offsetof(Plan, values), READONLY, "Of each parameter; GIVEN where a launch gives it."},
    {"hook", T_OBJECT, offsetof(Plan, hook), READONLY, "The config's own, or None."},
    {"function", T_ULONGLONG, offsetof(Plan, function), READONLY, "The driver's handle; 0 for a relay."},
    {"scratch", T_UINT, offsetof(Plan, scratch), READONLY, "Bytes of memory that each program asks for."},
    {NULL, 0, 0, 0, NULL}};

static PyTypeObject PlanType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "asmtune_launch.Plan",
    .tp_basicsize = sizeof(Plan),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "A compiled kernel on one device, and how a launch's arguments go into it.",
    .tp_new = Plan_new,
    .tp_dealloc = (destructor)Plan_dealloc,
    .tp_traverse = (traverseproc)Plan_traverse,
    .tp_methods = Plan_methods,
    .tp_members = Plan_members,
};
