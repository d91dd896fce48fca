/* Prepared calls: what a function of the host did for a signature, done again without it.
 *
 *     prepared = Prepared(names, positional, defaults, kinds, torch, machine, clear, guards,
 *                         allocate, attach, slow)
 *     prepared(*args, **kwargs)
 *
 * names, positional, defaults: of the function's parameters; GIVEN where there is no default.
 * torch: (descriptor of _cdata, of requires_grad, is_grad_enabled, get_default_dtype, is_conj,
 * is_neg). clear: callables that are to return something false. guards: as a plan's. allocate(sizes, strides, dtype): memory on the
 * current device. attach(result, *args): makes a result part of autograd's graph, or None.
 * slow(args, kwargs, key, held): calls whatever has no prepared call, or none that holds; key is
 * None where it is not to get one.
 */

enum { TENSOR = 6, SEQUENCE = 7 };
enum { OF_ARGUMENT = 0, OF_OUTPUT = 1, OF_SCRATCH = 2 };

typedef struct {
  int slot; /* of the kernel's parameters, or MOST_SLOTS and a descriptor's number; of a relay's values */
  int kind, index;
  uint64_t offset;
} Source;

/* A launch with everything but the addresses of what a call is given and allocates. */
typedef struct {
  Launcher *launcher;
  Plan *plan;
  uint64_t generation;
  PyObject *values; /* of the plan's parameters, for a relay */
  long long grid[3];
  uint64_t *packed;      /* of each of the kernel's parameters */
  Descriptor *described; /* of each of the plan's, without its address */
  int source_count;
  Source sources[MOST_PARAMETERS + 1];
} Step;

typedef struct {
  PyObject_HEAD
  Py_ssize_t step_count;
  Step *steps;
  PyObject *outputs; /* tuple of arguments of allocate */
  PyObject *scratch; /* the same, or NULL */
  PyObject *result;  /* tuples of: int, an output or ~ an argument; list of one, a plain value */
  PyObject *function; /* is called in place of all, or NULL */
  bool attached, persistent; /* uses memory that other calls use */
} Call;

enum { MOST_OUTPUTS = 32 };

/* ---- making ---- */

/* (parameter, kind, index, offset) of each tensor; `slots`: of the parameters, -1 where they have none. */
static int read_sources(PyObject *sources, const int *slots, Step *step) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sources); i++) {
    Source *source = &step->sources[step->source_count];
    int parameter;
    long long offset;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(sources, i), "iiiL", &parameter, &source->kind, &source->index, &offset))
      return -1;
    if (parameter < 0 || parameter >= step->launcher->count || step->source_count >= MOST_PARAMETERS) {
      PyErr_SetString(PyExc_ValueError, "a prepared launch has an address of no parameter");
      return -1;
    }
    source->slot = slots[parameter];
    source->offset = (uint64_t)offset;
    step->source_count += source->slot >= 0;
  }
  return 0;
}

/* A descriptor's value is (shape, strides, whether what lies outside is NaN); its address has a source. */
static int read_descriptors(Step *step, int *slots) {
  const Plan *plan = step->plan;
  for (int i = 0; i < plan->described_count; i++) {
    Descriptor *one = &step->described[i];
    int index = plan->described[i].index, padded;
    PyObject *shape, *strides, *value = PyTuple_GET_ITEM(step->values, index);
    if (!PyTuple_Check(value) || !PyArg_ParseTuple(value, "OOp", &shape, &strides, &padded) ||
        !read_extents(shape, &one->rank, one->shape) || !read_extents(strides, &one->rank, one->strides) ||
        one->rank != plan->described[i].rank) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a prepared launch has a descriptor of another kernel");
      return -1;
    }
    one->padded = padded;
    slots[index] = MOST_SLOTS + i;
  }
  return 0;
}

static int read_native(Step *step, int *slots) {
  const Plan *plan = step->plan;
  step->packed = PyMem_Calloc((size_t)plan->slot_count + 1, sizeof *step->packed);
  step->described = PyMem_Calloc((size_t)plan->described_count + 1, sizeof *step->described);
  if (!step->packed || !step->described) {
    PyErr_NoMemory();
    return -1;
  }
  if (read_descriptors(step, slots) < 0) return -1;
  for (int i = 0; i < plan->slot_count; i++) {
    const Slot *slot = &plan->slots[i];
    step->packed[i] = slot->constant;
    if (slot->index < 0 || slot->kind == MAP || slot->kind == ADDRESS) continue;
    if (slot->kind >= VALUES) {
      const Described *one = described_of(plan, slot->index);
      if (pack_part(one, slot, &step->described[one - plan->described], &step->packed[i]) == USUAL) continue;
      PyErr_SetString(PyExc_ValueError, "an extent does not fit a prepared launch");
      return -1;
    }
    slots[slot->index] = i;
    PyObject *value = PyTuple_GET_ITEM(step->values, slot->index);
    if (slot->kind == POINTER && value == Py_None) continue; /* has a source */
    if (slot->kind == POINTER) {
      step->packed[i] = PyLong_AsUnsignedLongLong(value); /* memory that lives on */
      if (PyErr_Occurred()) return -1;
    } else if (pack(slot->kind, value, &step->packed[i]) != USUAL) {
      PyErr_Format(PyExc_ValueError, "%R does not fit slot %d of a prepared launch", value, i);
      return -1;
    }
  }
  return 0;
}

/* (launcher, plan, grid, values, sources, offset of the kernel's scratch or -1); a value with a
 * source is None. */
static int read_step(PyObject *item, Step *step) {
  PyObject *launcher, *plan, *values, *sources;
  long long scratch;
  int slots[MOST_PARAMETERS];
  if (!PyArg_ParseTuple(item, "O!O!(LLL)O!O!L", &LauncherType, &launcher, &PlanType, &plan, &step->grid[0],
                        &step->grid[1], &step->grid[2], &PyTuple_Type, &values, &PyTuple_Type, &sources, &scratch))
    return -1;
  step->launcher = (Launcher *)Py_NewRef(launcher);
  step->plan = (Plan *)Py_NewRef(plan);
  step->values = Py_NewRef(values);
  step->generation = step->launcher->generation;
  if (PyTuple_GET_SIZE(values) != step->launcher->count) {
    PyErr_SetString(PyExc_ValueError, "a prepared launch has the values of another kernel");
    return -1;
  }
  for (int i = 0; i < MOST_PARAMETERS; i++) slots[i] = step->plan->function ? -1 : i;
  if (step->plan->function && read_native(step, slots) < 0) return -1;
  if (read_sources(sources, slots, step) < 0) return -1;
  if (step->plan->function && scratch >= 0) /* the last but one parameter of every kernel of Triton's */
    step->sources[step->source_count++] =
        (Source){step->plan->slot_count - 2, OF_SCRATCH, 0, (uint64_t)scratch};
  return 0;
}

static int Call_traverse(Call *self, visitproc visit, void *arg) {
  for (Py_ssize_t i = 0; i < self->step_count; i++) {
    Py_VISIT(self->steps[i].launcher);
    Py_VISIT(self->steps[i].plan);
    Py_VISIT(self->steps[i].values);
  }
  Py_VISIT(self->outputs);
  Py_VISIT(self->result);
  Py_VISIT(self->function);
  return 0;
}

static void Call_dealloc(Call *self) {
  PyObject_GC_UnTrack(self);
  for (Py_ssize_t i = 0; i < self->step_count; i++) {
    PyMem_Free(self->steps[i].packed);
    PyMem_Free(self->steps[i].described);
    Py_XDECREF(self->steps[i].launcher);
    Py_XDECREF(self->steps[i].plan);
    Py_XDECREF(self->steps[i].values);
  }
  PyMem_Free(self->steps);
  Py_XDECREF(self->outputs);
  Py_XDECREF(self->scratch);
  Py_XDECREF(self->result);
  Py_XDECREF(self->function);
  Py_TYPE(self)->tp_free(self);
}

/* Call(steps, outputs, scratch, result, function, attached, persistent) */
static PyObject *Call_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
  PyObject *steps, *outputs, *scratch, *result, *function;
  int attached, persistent;
  if (!PyArg_ParseTuple(args, "O!O!OOOpp", &PyTuple_Type, &steps, &PyTuple_Type, &outputs, &scratch, &result,
                        &function, &attached, &persistent))
    return NULL;
  if (PyTuple_GET_SIZE(outputs) > MOST_OUTPUTS) {
    PyErr_SetString(PyExc_ValueError, "a prepared call has too many outputs");
    return NULL;
  }
  Call *self = (Call *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->outputs = Py_NewRef(outputs);
  self->scratch = scratch == Py_None ? NULL : Py_NewRef(scratch);
  self->result = Py_NewRef(result);
  self->function = function == Py_None ? NULL : Py_NewRef(function);
  self->attached = attached;
  self->persistent = persistent;
  Py_ssize_t count = PyTuple_GET_SIZE(steps);
  self->steps = PyMem_Calloc((size_t)count + 1, sizeof(Step));
  for (Py_ssize_t i = 0; self->steps && i < count; i++) {
    self->step_count = i + 1;
    if (read_step(PyTuple_GET_ITEM(steps, i), &self->steps[i]) < 0) {
      Py_DECREF(self);
      return NULL;
    }
  }
  if (self->steps) return (PyObject *)self;
  Py_DECREF(self);
  return PyErr_NoMemory();
}

static PyTypeObject CallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "asmtune_launch.Call",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Allocations and launches of one signature.",
    .tp_new = Call_new,
    .tp_dealloc = (destructor)Call_dealloc,
    .tp_traverse = (traverseproc)Call_traverse,
};

/* ---- signatures ---- */

typedef struct {
  PyObject_HEAD
  Py_ssize_t count, positional;
  PyObject *names, *places, *by_name, *defaults; /* by_name: of parameters that take no position */
  PyObject *cdata, *requires_grad, *grad_enabled, *default_dtype, *is_conj, *is_neg, *device, *stream;
  PyObject *clear, *guards, *allocate, *attach, *slow;
  PyObject *kinds_kept;
  Kinds kinds;
  Table table;
  vectorcallfunc vectorcall;
} Prepared;

typedef struct {
  PyObject *placed[MOST_PARAMETERS];
  Words words;
  PyObject *stream;
} Signature;

static Outcome place_parameters(const Prepared *self, PyObject *const *args, Py_ssize_t given_count,
                                PyObject *names, PyObject **placed) {
  if (given_count > self->positional) return UNUSUAL;
  for (Py_ssize_t i = 0; i < self->count; i++)
    placed[i] = i < given_count ? args[i] : PyTuple_GET_ITEM(self->defaults, i);
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++) {
    PyObject *place = PyDict_GetItem(self->places, PyTuple_GET_ITEM(names, i));
    Py_ssize_t at = place ? PyLong_AsSsize_t(place) : -1;
    if (at < given_count) return UNUSUAL; /* unknown, or given twice */
    placed[at] = args[given_count + i];
  }
  for (Py_ssize_t i = 0; i < self->count; i++)
    if (placed[i] == given) return UNUSUAL;
  return USUAL;
}

/* 1 or 0 by what a callable returns, -1 with an exception. */
static int ask(PyObject *callable) {
  PyObject *answer = PyObject_CallNoArgs(callable);
  if (!answer) return -1;
  int truth = PyObject_IsTrue(answer);
  Py_DECREF(answer);
  return truth;
}

static Outcome check_clear(const Prepared *self) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->clear); i++) {
    int answer = ask(PyTuple_GET_ITEM(self->clear, i));
    if (answer) return answer < 0 ? ERROR : UNUSUAL;
  }
  return dicts_hold(self->guards) ? USUAL : UNUSUAL;
}

/* UNUSUAL where a tensor's memory holds the conjugates or negatives of its values. */
static Outcome check_values(const Prepared *self, PyObject *tensor, const TensorFacts *facts) {
  enum { COMPLEX_HALF = 8, COMPLEX_DOUBLE = 10 }; /* PyTorch's numbers of dtypes */
  bool complex = facts->dtype >= COMPLEX_HALF && facts->dtype <= COMPLEX_DOUBLE;
  /* A negative is the imaginary part of a conjugate, whose elements never lie side by side. */
  if (!complex && facts->dim && facts->strides[facts->dim - 1] == 1) return USUAL;
  PyObject *const asked[] = {self->is_neg, self->is_conj};
  for (int i = 0; i < 1 + complex; i++) {
    PyObject *answer = PyObject_CallOneArg(asked[i], tensor);
    if (!answer) return ERROR;
    Py_DECREF(answer);
    if (answer != Py_False) return UNUSUAL;
  }
  return USUAL;
}

/* 1 + the first parameter before `index` that is the same object, and that is at the same address: a
 * function may ask for either, and a trace of f(x, x) cannot tell one argument from the other. */
static uint64_t shared_with(const Signature *signature, int index) {
  const uint64_t *pointers = signature->words.pointers;
  int object = 0, address = 0;
  while (object < index && signature->placed[object] != signature->placed[index]) object++;
  while (address < index && (!pointers[index] || pointers[address] != pointers[index])) address++;
  return (uint64_t)(object < index ? object + 1 : 0) << 16 | (uint64_t)(address < index ? address + 1 : 0) << 32;
}

static Outcome add_tensor_facts(const Prepared *self, Signature *signature, int index) {
  Words *words = &signature->words;
  PyObject *tensor = signature->placed[index];
  TensorFacts facts;
  Outcome outcome = read_tensor(self->cdata, tensor, &facts);
  if (outcome == USUAL) outcome = check_values(self, tensor, &facts);
  if (outcome != USUAL) return outcome;
  if (facts.device != words->device || words->count + 3 + 2 * facts.dim > MOST_WORDS) return UNUSUAL;
  PyObject *answer =
      Py_TYPE(self->requires_grad)->tp_descr_get(self->requires_grad, tensor, (PyObject *)Py_TYPE(tensor));
  if (!answer) return ERROR;
  Py_DECREF(answer); /* True or False */
  words->pointers[index] = (uint64_t)(uintptr_t)facts.data;
  add(words, TENSOR | (words->pointers[index] % 16 == 0) << 8 | (uint64_t)(answer == Py_True) << 9 |
                 shared_with(signature, index));
  add(words, (uint64_t)(uint32_t)facts.dtype << 32 | (uint64_t)(uint32_t)facts.device_type);
  add(words, (uint64_t)facts.dim);
  for (int64_t i = 0; i < facts.dim; i++) add(words, (uint64_t)facts.sizes[i]);
  for (int64_t i = 0; i < facts.dim; i++) add(words, (uint64_t)facts.strides[i]);
  return USUAL;
}

static Outcome add_parameter(const Prepared *self, Signature *signature, int index) {
  Words *words = &signature->words;
  PyObject *value = signature->placed[index];
  words->pointers[index] = 0;
  if (one_of(Py_TYPE(value), self->kinds.tensors)) return add_tensor_facts(self, signature, index);
  Py_ssize_t items = PyTuple_CheckExact(value) ? PyTuple_GET_SIZE(value) : -1;
  if (words->count + 2 + 2 * Py_MAX(items, 0) > MOST_WORDS) return UNUSUAL;
  if (words->held_count + items + 1 > MOST_HELD) return UNUSUAL;
  if (items < 0) return add_value(&self->kinds, words, value);
  add(words, SEQUENCE);
  add(words, (uint64_t)items);
  for (Py_ssize_t i = 0; i < items; i++) {
    Outcome outcome = add_value(&self->kinds, words, PyTuple_GET_ITEM(value, i));
    if (outcome != USUAL) return outcome;
  }
  return USUAL;
}

/* The signature holds device and stream, whether gradients are on, the default dtype, and all arguments. */
static Outcome read_signature(const Prepared *self, Signature *signature) {
  Words *words = &signature->words;
  Outcome outcome = check_clear(self);
  if (outcome != USUAL) return outcome;
  PyObject *device = PyObject_CallNoArgs(self->device);
  if (!device) return ERROR;
  words->device = PyLong_AsLongLong(device);
  signature->stream = PyObject_CallOneArg(self->stream, device);
  Py_DECREF(device);
  int grad = signature->stream ? ask(self->grad_enabled) : -1;
  if (grad < 0) return ERROR;
  uint64_t queue = PyLong_AsUnsignedLongLong(signature->stream);
  if (queue == (uint64_t)-1 && PyErr_Occurred()) return ERROR;
  add(words, (uint64_t)words->device);
  add(words, queue);
  add(words, (uint64_t)grad);
  PyObject *dtype = PyObject_CallNoArgs(self->default_dtype);
  if (!dtype) return ERROR;
  add(words, (uint64_t)(uintptr_t)dtype);
  Py_DECREF(dtype); /* PyTorch's dtypes live as long as the process */
  for (int i = 0; i < self->count; i++) {
    outcome = add_parameter(self, signature, i);
    if (outcome != USUAL) return outcome;
  }
  return USUAL;
}

/* ---- doing it again ---- */

static bool call_holds(const Call *call) {
  for (Py_ssize_t i = 0; i < call->step_count; i++) {
    const Step *step = &call->steps[i];
    if (step->generation != step->launcher->generation || !all_quiet(step->launcher) || !guards_hold(step->plan))
      return false;
  }
  return true;
}

/* Memory of a call: its outputs, then its scratch. */
typedef struct {
  Py_ssize_t count;
  PyObject *tensors[MOST_OUTPUTS + 1];
  uint64_t pointers[MOST_OUTPUTS + 1];
} Memory;

static int allocate_one(const Prepared *self, PyObject *args, Memory *memory) {
  PyObject *tensor =
      PyObject_Vectorcall(self->allocate, &PyTuple_GET_ITEM(args, 0), (size_t)PyTuple_GET_SIZE(args), NULL);
  if (!tensor) return -1;
  memory->tensors[memory->count] = tensor;
  void *impl = tensor_impl(self->cdata, tensor), *data = NULL;
  if (!impl || aten.data(&impl, &data)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "memory of a prepared call has no address");
    memory->count++;
    return -1;
  }
  memory->pointers[memory->count++] = (uint64_t)(uintptr_t)data;
  return 0;
}

static int allocate_all(const Prepared *self, const Call *call, Memory *memory) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(call->outputs); i++)
    if (allocate_one(self, PyTuple_GET_ITEM(call->outputs, i), memory) < 0) return -1;
  return call->scratch ? allocate_one(self, call->scratch, memory) : 0;
}

static uint64_t address_of(const Source *source, const Words *words, const Memory *memory) {
  uint64_t base = source->kind == OF_ARGUMENT ? words->pointers[source->index]
                  : source->kind == OF_OUTPUT ? memory->pointers[source->index]
                                              : memory->pointers[memory->count - 1];
  return base + source->offset;
}

static int relay_step(const Step *step, const Words *words, const Memory *memory, PyObject *stream) {
  Launcher *launcher = step->launcher;
  PyObject *placed[MOST_PARAMETERS], *numbers[MOST_PARAMETERS];
  int made = 0, failed = 0;
  for (Py_ssize_t i = 0; i < launcher->count; i++) {
    PyObject *value = PyTuple_GET_ITEM(step->values, i);
    placed[i] = value == given ? NULL : value;
  }
  for (; made < step->source_count && !failed; made++) {
    numbers[made] = PyLong_FromUnsignedLongLong(address_of(&step->sources[made], words, memory));
    failed = !numbers[made];
    placed[step->sources[made].slot] = numbers[made];
  }
  if (!failed) failed = launch_by_relay(launcher, step->plan, placed, step->grid, stream) != USUAL;
  while (made) Py_XDECREF(numbers[--made]);
  if (failed && !PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "a prepared launch was refused");
  return failed ? -1 : 0;
}

static int launch_step(Step *step, const Words *words, const Memory *memory, PyObject *stream) {
  if (!step->plan->function) return relay_step(step, words, memory, stream);
  const Plan *plan = step->plan;
  Parameters made;
  Descriptor described[MOST_DESCRIPTORS];
  memcpy(made.packed, step->packed, (size_t)plan->slot_count * sizeof *made.packed);
  memcpy(described, step->described, (size_t)plan->described_count * sizeof *described);
  for (int i = 0; i < step->source_count; i++) {
    int slot = step->sources[i].slot;
    uint64_t address = address_of(&step->sources[i], words, memory);
    if (slot < MOST_SLOTS) made.packed[slot] = address;
    else described[slot - MOST_SLOTS].pointer = address;
  }
  for (int i = 0; i < plan->described_count; i++) {
    if (!plan->described[i].is_mapped || make_map(&plan->described[i], &described[i], made.maps[i]) == USUAL) continue;
    PyErr_SetString(PyExc_RuntimeError, "Triton Error [CUDA]: a tensor map of a prepared launch is refused");
    return -1;
  }
  for (int i = 0; i < plan->slot_count; i++) {
    if (plan->slots[i].kind == ADDRESS)
      made.packed[i] = described[described_of(plan, plan->slots[i].index) - plan->described].pointer;
    made.parameters[i] = place_of(plan, i, &made);
  }
  return driver_launch(plan, step->grid, PyLong_AsUnsignedLongLong(stream), made.parameters);
}

static PyObject *result_of(PyObject *tree, const Memory *memory, PyObject *const *placed) {
  if (PyLong_CheckExact(tree)) {
    Py_ssize_t index = PyLong_AsSsize_t(tree);
    return Py_NewRef(index >= 0 ? memory->tensors[index] : placed[~index]);
  }
  if (PyList_CheckExact(tree)) return Py_NewRef(PyList_GET_ITEM(tree, 0));
  if (!PyTuple_CheckExact(tree)) return Py_NewRef(tree);
  PyObject *result = PyTuple_New(PyTuple_GET_SIZE(tree));
  for (Py_ssize_t i = 0; result && i < PyTuple_GET_SIZE(tree); i++) {
    PyObject *item = result_of(PyTuple_GET_ITEM(tree, i), memory, placed);
    if (item) PyTuple_SET_ITEM(result, i, item);
    else Py_CLEAR(result);
  }
  return result;
}

static PyObject *attach_result(const Prepared *self, PyObject *result, PyObject *const *placed) {
  PyObject *args[1 + MOST_PARAMETERS];
  args[0] = result;
  memcpy(args + 1, placed, (size_t)self->count * sizeof *args);
  return PyObject_Vectorcall(self->attach, args, (size_t)self->count + 1, NULL);
}

/* Launches all; NULL without an exception where the slow path must. */
static PyObject *run_call(const Prepared *self, Call *call, Signature *signature) {
  bool busy = call->persistent && driver_capturing(PyLong_AsUnsignedLongLong(signature->stream));
  if (busy || !call_holds(call) || !driver_ready()) return NULL;
  Memory memory = {.count = 0};
  PyObject *result = NULL;
  int failed = allocate_all(self, call, &memory);
  for (Py_ssize_t i = 0; i < call->step_count && !failed; i++) {
    int64_t began = count_from();
    failed = launch_step(&call->steps[i], &signature->words, &memory, signature->stream);
    if (!failed) count_launch(call->steps[i].plan, began);
  }
  for (Py_ssize_t i = 0; i < call->step_count && !failed; i++) {
    Launcher *launcher = call->steps[i].launcher;
    if (launcher->last != (PyObject *)call->steps[i].plan)
      Py_XSETREF(launcher->last, Py_NewRef(call->steps[i].plan));
  }
  if (!failed) result = result_of(call->result, &memory, signature->placed);
  while (memory.count) Py_DECREF(memory.tensors[--memory.count]);
  if (result && call->attached) Py_SETREF(result, attach_result(self, result, signature->placed));
  return result;
}

static PyObject *call_slowly(const Prepared *self, PyObject *const *args, Py_ssize_t given_count, PyObject *names,
                             const Words *words) {
  PyObject *positional = NULL, *named = NULL, *key = NULL, *held = NULL, *result = NULL;
  if (pack_arguments(args, given_count, names, &positional, &named) == 0 &&
      pack_words(words, &key, &held) == 0) {
    PyObject *all[4] = {positional, named, key, held};
    result = PyObject_Vectorcall(self->slow, all, 4, NULL);
  }
  Py_XDECREF(positional);
  Py_XDECREF(named);
  Py_XDECREF(key);
  Py_XDECREF(held);
  return result;
}

static PyObject *Prepared_vectorcall(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names) {
  Prepared *self = (Prepared *)callable;
  Py_ssize_t given_count = PyVectorcall_NARGS(flags);
  PyObject *result = NULL;
  Signature signature;
  words_begin(&signature.words);
  signature.stream = NULL;
  Outcome outcome = place_parameters(self, args, given_count, names, signature.placed);
  if (outcome == USUAL) outcome = read_signature(self, &signature);
  if (outcome == USUAL) {
    Call *call = (Call *)Py_XNewRef(table_find(&self->table, &signature.words));
    if (call && call->function) {
      /* Not as it was called: an alternative may have other names and defaults. */
      if (call_holds(call))
        result = PyObject_Vectorcall(call->function, signature.placed, (size_t)self->positional, self->by_name);
    } else if (call) {
      result = run_call(self, call, &signature);
    }
    Py_XDECREF(call);
  }
  if (!result && outcome != ERROR && !PyErr_Occurred())
    result = call_slowly(self, args, given_count, names, outcome == USUAL ? &signature.words : NULL);
  words_release(&signature.words);
  Py_XDECREF(signature.stream);
  return result;
}

/* ---- the type ---- */

static PyObject *Prepared_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
  PyObject *names, *defaults, *kinds, *cdata, *requires_grad, *grad_enabled, *default_dtype, *is_conj, *is_neg;
  PyObject *device, *stream, *clear, *guards, *allocate, *attach, *slow;
  Py_ssize_t positional;
  if (!PyArg_ParseTuple(args, "O!nO!O!(OOOOOO)(OO)O!O!OOO", &PyTuple_Type, &names, &positional, &PyTuple_Type,
                        &defaults, &PyTuple_Type, &kinds, &cdata, &requires_grad, &grad_enabled, &default_dtype,
                        &is_conj, &is_neg, &device, &stream, &PyTuple_Type, &clear, &PyTuple_Type, &guards,
                        &allocate, &attach, &slow))
    return NULL;
  if (PyTuple_GET_SIZE(names) > MOST_PARAMETERS || PyTuple_GET_SIZE(defaults) != PyTuple_GET_SIZE(names)) {
    PyErr_SetString(PyExc_ValueError, "a prepared function has too many parameters");
    return NULL;
  }
  Prepared *self = (Prepared *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = Prepared_vectorcall;
  self->count = PyTuple_GET_SIZE(names);
  self->positional = positional;
  self->names = Py_NewRef(names);
  self->defaults = Py_NewRef(defaults);
  self->cdata = Py_NewRef(cdata);
  self->requires_grad = Py_NewRef(requires_grad);
  self->grad_enabled = Py_NewRef(grad_enabled);
  self->default_dtype = Py_NewRef(default_dtype);
  self->is_conj = Py_NewRef(is_conj);
  self->is_neg = Py_NewRef(is_neg);
  self->device = Py_NewRef(device);
  self->stream = Py_NewRef(stream);
  self->clear = Py_NewRef(clear);
  self->guards = Py_NewRef(guards);
  self->allocate = Py_NewRef(allocate);
  self->attach = Py_NewRef(attach);
  self->slow = Py_NewRef(slow);
  self->places = places_of(names);
  self->by_name = PyTuple_GetSlice(names, positional, self->count);
  if (!self->places || !self->by_name || read_kinds(&self->kinds, &self->kinds_kept, kinds) < 0) Py_CLEAR(self);
  return (PyObject *)self;
}

static int Prepared_traverse(Prepared *self, visitproc visit, void *arg) {
  Py_VISIT(self->attach);
  Py_VISIT(self->slow);
  for (Py_ssize_t i = 0; i < self->table.slots; i++)
    if (self->table.entries[i].words) Py_VISIT(self->table.entries[i].plan);
  return 0;
}

static int Prepared_clear(Prepared *self) {
  table_clear(&self->table);
  Py_CLEAR(self->attach);
  Py_CLEAR(self->slow);
  return 0;
}

static void Prepared_dealloc(Prepared *self) {
  PyObject_GC_UnTrack(self);
  Prepared_clear(self);
  PyObject *const rest[] = {self->names,        self->places, self->defaults, self->cdata, self->requires_grad,
                            self->grad_enabled, self->device, self->stream,   self->clear, self->guards,
                            self->allocate,     self->kinds_kept, self->default_dtype,
                            self->is_conj,      self->is_neg, self->by_name};
  for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) Py_XDECREF(rest[i]);
  Py_TYPE(self)->tp_free(self);
}

static PyObject *Prepared_keep(Prepared *self, PyObject *args) {
  PyObject *call;
  return keep_in(&self->table, args, "y#O!O!:keep", &CallType, &call);
}

static PyObject *Prepared_forget(Prepared *self, PyObject *Py_UNUSED(nothing)) {
  table_clear(&self->table);
  Py_RETURN_NONE;
}

static Py_ssize_t Prepared_length(Prepared *self) { return self->table.used; }

static PyMethodDef Prepared_methods[] = {
    {"keep", (PyCFunction)Prepared_keep, METH_VARARGS, "keep(key, call, held): the call of a signature."},
    {"forget", (PyCFunction)Prepared_forget, METH_NOARGS, "Forgets every call."},
    {NULL, NULL, 0, NULL}};

static PyMappingMethods Prepared_mapping = {.mp_length = (lenfunc)Prepared_length};

static PyTypeObject PreparedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "asmtune_launch.Prepared",
    .tp_basicsize = sizeof(Prepared),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "A function of the host, and the calls that were prepared of it.",
    .tp_new = Prepared_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Prepared, vectorcall),
    .tp_dealloc = (destructor)Prepared_dealloc,
    .tp_traverse = (traverseproc)Prepared_traverse,
    .tp_clear = (inquiry)Prepared_clear,
    .tp_methods = Prepared_methods,
    .tp_as_mapping = &Prepared_mapping,
};
