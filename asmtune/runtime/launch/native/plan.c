/* A plan: a compiled kernel on one device, and how a launch's arguments go into it.
 *
 *     Plan(function, threads, shared, slots, values, kernel, config, guards, relay, between, hook, chosen,
 *          scratch=(0, 1, None), launch=(1, 0, 0), descriptors=())
 *
 * function: the driver's handle; 0 where `relay` launches. threads, shared: of a program.
 * slots: (kind, index, constant) of each of the kernel's own parameters; of a descriptor's, the axis.
 * values: of each of the function's parameters that the launch itself does not give;
 *   the parameter itself is GIVEN where it does.
 * kernel: what a launch returns. config: what it ran with.
 * guards: (dict, name, expected) that must hold still, expected GIVEN for "absent".
 * relay, between: Triton's own launcher, and what it takes between the stream and the
 *   function's parameters.
 * hook, chosen: None, or what is called before each launch with the values by name, and the
 *   config's own values among them.
 * scratch: bytes of memory that each program asks for, their alignment, and a function that returns the
 *   allocator of now, which Triton would ask.
 * launch: blocks of a cluster, whether all blocks run together, and whether the kernel may begin before the
 *   one ahead of it has ended.
 * descriptors: (index, block, layout, map) of each descriptor that the kernel takes; map: (swizzle, bytes
 *   of an element, the driver's dtype, box, whether two elements share a byte), or None where the kernel
 *   copies without the copy engine.
 *
 * While `counting`, a plan has the number of its launches, the host's time before those that follow another
 * at once, and the host's time in the quickest: in others a full queue may wait for the GPU.
 */

#include <time.h>

typedef enum { POINTER, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, VALUES } Kind;
/* Parts of a descriptor: 128 bytes for the copy engine, or address and padding; an extent of an axis in 32
 * and 64 bits; a stride. */
enum { MAP = VALUES, ADDRESS, PADDED, EXTENT, WIDE_EXTENT, STRIDE, KINDS };
enum { MAP_BYTES = 128, MOST_SLOTS = MOST_PARAMETERS + 2 + 16 * (2 + 4 * MOST_RANK) };

typedef struct {
  int kind;
  int index;         /* of the argument; -1: the constant */
  uint64_t constant; /* as the kernel reads it */
} Slot;

/* A descriptor that a kernel takes. */
typedef struct {
  int index, rank;
  int64_t block[MOST_RANK];
  PyObject *layout; /* owned, or NULL */
  int swizzle, element, dtype, shared_bytes;
  bool is_mapped;
  int64_t box[MOST_RANK];
  Descriptor last; /* what `map` was made of */
  unsigned char map[MAP_BYTES];
} Described;

typedef struct {
  PyObject_HEAD
  uint64_t function;
  unsigned threads, shared, scratch, alignment;
  unsigned cluster;
  int cooperative, dependent;
  int slot_count;
  Slot *slots; /* Triton's two scratch pointers behind the kernel's */
  int described_count;
  Described *described;
  PyObject *values, *kernel, *config, *guards, *relay, *between, *hook, *chosen, *allocator;
  unsigned long long launches, followed, before_ns, quickest_ns;
} Plan;

static PyObject *given; /* a sentinel: "the launch gives it", "not there" */

static const int64_t LOWEST[VALUES] = {0, INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN, 0, 0, 0, 0, 0, 0};
static const int64_t HIGHEST[VALUES] = {0,          INT8_MAX,   INT16_MAX, INT32_MAX, INT64_MAX, UINT8_MAX,
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

static int read_described(Plan *plan, PyObject *descriptors) {
  Py_ssize_t count = PyTuple_GET_SIZE(descriptors);
  if (count > MOST_DESCRIPTORS) {
    PyErr_SetString(PyExc_ValueError, "a plan has too many descriptors");
    return -1;
  }
  plan->described = PyMem_Calloc((size_t)count + 1, sizeof(Described));
  if (!plan->described) {
    PyErr_NoMemory();
    return -1;
  }
  for (; plan->described_count < count; plan->described_count++) {
    Described *one = &plan->described[plan->described_count];
    PyObject *block, *layout, *map, *box;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(descriptors, plan->described_count), "iO!OO", &one->index, &PyTuple_Type,
                          &block, &layout, &map))
      return -1;
    one->is_mapped = map != Py_None;
    if (one->is_mapped && !PyArg_ParseTuple(map, "iiiO!p", &one->swizzle, &one->element, &one->dtype, &PyTuple_Type,
                                            &box, &one->shared_bytes))
      return -1;
    if (!read_extents(block, &one->rank, one->block) ||
        (one->is_mapped && !read_extents(box, &one->rank, one->box))) {
      PyErr_SetString(PyExc_ValueError, "a descriptor of a plan has no block");
      return -1;
    }
    one->layout = layout == Py_None ? NULL : Py_NewRef(layout);
  }
  return 0;
}

static Described *described_of(const Plan *plan, int index) {
  for (int i = 0; i < plan->described_count; i++)
    if (plan->described[i].index == index) return &plan->described[i];
  return NULL;
}

static int read_slots(Plan *plan, PyObject *slots) {
  Py_ssize_t count = PyTuple_GET_SIZE(slots);
  if (count > MOST_SLOTS) {
    PyErr_SetString(PyExc_ValueError, "a plan has too many slots");
    return -1;
  }
  plan->slots = PyMem_Calloc((size_t)count + 1, sizeof(Slot));
  if (!plan->slots) {
    PyErr_NoMemory();
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
    if (slot->kind >= VALUES) slot->constant = (uint64_t)PyLong_AsUnsignedLong(constant);
    if (slot->kind >= VALUES && (!described_of(plan, slot->index) || slot->constant >= MOST_RANK)) {
      PyErr_SetString(PyExc_ValueError, "a slot of a plan is of no descriptor");
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
  for (int i = 0; i < plan->described_count; i++) Py_XDECREF(plan->described[i].layout);
  PyMem_Free(plan->described);
  PyMem_Free(plan->slots);
  Py_XDECREF(plan->allocator);
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
  Py_VISIT(plan->allocator);
  return 0;
}

static PyObject *Plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  unsigned long long function;
  unsigned threads, shared, scratch = 0, alignment = 1, cluster = 1;
  int cooperative = 0, dependent = 0;
  PyObject *slots, *values, *kernel, *config, *guards, *relay, *between, *hook, *chosen;
  PyObject *allocator = Py_None, *descriptors = NULL;
  if (kwargs && PyDict_GET_SIZE(kwargs)) {
    PyErr_SetString(PyExc_TypeError, "Plan takes no keywords");
    return NULL;
  }
  if (!PyArg_ParseTuple(args, "KIIO!O!OOO!OO!OO!|(IIO)(Ipp)O!", &function, &threads, &shared, &PyTuple_Type, &slots,
                        &PyTuple_Type, &values, &kernel, &config, &PyTuple_Type, &guards, &relay, &PyTuple_Type,
                        &between, &hook, &PyDict_Type, &chosen, &scratch, &alignment, &allocator, &cluster,
                        &cooperative, &dependent, &PyTuple_Type, &descriptors))
    return NULL;
  Plan *plan = (Plan *)type->tp_alloc(type, 0);
  if (!plan) return NULL;
  plan->function = function;
  plan->threads = threads;
  plan->shared = shared;
  plan->scratch = scratch;
  plan->alignment = alignment;
  plan->allocator = Py_NewRef(allocator);
  plan->cluster = cluster;
  plan->cooperative = cooperative;
  plan->dependent = dependent;
  plan->values = Py_NewRef(values);
  plan->kernel = Py_NewRef(kernel);
  plan->config = Py_NewRef(config);
  plan->guards = Py_NewRef(guards);
  plan->relay = Py_NewRef(relay);
  plan->between = Py_NewRef(between);
  plan->hook = hook == Py_None ? NULL : Py_NewRef(hook);
  plan->chosen = Py_NewRef(chosen);
  if ((descriptors && read_described(plan, descriptors) < 0) || read_slots(plan, slots) < 0) {
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
