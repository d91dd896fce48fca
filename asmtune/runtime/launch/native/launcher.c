/* The way of a launch: arguments, words, plan, grid, driver.
 *
 *     launcher = Launcher(names, modes, functions, rules, kinds, machine, quiet, slow)
 *     launcher[grid](*args, **kwargs)
 *
 * names, modes: of the function's parameters. functions: (function, indices) of the key.
 * rules: (name, function) of `@triton.heuristics`, in the order in which Triton calls them.
 * kinds: (tensor types, frozen types, dtype, data_ptr, get_device). machine: (device, stream),
 * callables. quiet: lists that must be empty. slow(grid, args, kwargs, key, held, hook): launches
 * whatever has no plan, or none that holds; key is None where the launch has no words. hook: the
 * config's own that has been called for this launch already, or None. Where all rules have been called
 * as well, slow gets two arguments more: the config's values that they saw, and a tuple of their results.
 *
 * A kernel with rules has a plan for each combination of their results: the words of the arguments
 * lead to any of these plans, whose config the rules are called with, and these words with those of
 * the results to the plan itself.
 */

typedef struct {
  int place;   /* of the parameter that it computes; -1: an option */
  bool counts; /* no later rule computes the same name again */
} Rule;

typedef struct {
  PyObject_HEAD
  Py_ssize_t count;
  PyObject *names;  /* tuple of interned strings */
  PyObject *places; /* their indices by name */
  char modes[MOST_PARAMETERS];
  PyObject *functions, *quiet, *slow, *device, *stream, *last;
  PyObject *rules; /* tuple of (name, function) */
  Py_ssize_t rule_count, first_computed; /* the first parameter that a rule computes */
  Rule facts[MOST_RULES];
  PyObject *kinds_kept; /* holds what `kinds` points to */
  Kinds kinds;
  Table table;
  uint64_t generation; /* rises where plans are forgotten or replaced */
} Launcher;

static PyTypeObject LauncherType;

/* observe(launcher, plan, grid, values): hears of each launch while a call is traced; plan, grid and
 * values are None where the slow path launches. NULL for nobody. */
static PyObject *observer;

typedef struct {
  PyObject_HEAD
  Launcher *launcher;
  PyObject *grid;
  vectorcallfunc vectorcall;
} Bound;

/* Options that a launch may give beside the arguments, and a plan can have. */
static PyObject *option_names[2]; /* interned; made with the module */

/* Two bits of an option: that it is given, and its value. */
static Outcome read_option(PyObject *name, PyObject *value, uint64_t *options) {
  if (!PyBool_Check(value)) return UNUSUAL;
  for (int i = 0; i < 2; i++)
    if (name == option_names[i] || PyUnicode_Compare(name, option_names[i]) == 0) {
      *options |= (uint64_t)(1 | (value == Py_True) << 1) << 2 * i;
      return USUAL;
    }
  return UNUSUAL; /* another option, such as num_warps, or a mistake */
}

static Outcome place_arguments(Launcher *self, PyObject *const *args, Py_ssize_t given_count,
                               PyObject *names, PyObject **placed, uint64_t *options) {
  /* Triton refuses a position for what a rule computes. */
  if (given_count > self->count || given_count > self->first_computed) return UNUSUAL;
  memset(placed, 0, (size_t)self->count * sizeof *placed);
  memcpy(placed, args, (size_t)given_count * sizeof *placed);
  Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t i = 0; i < named; i++) {
    PyObject *name = PyTuple_GET_ITEM(names, i);
    PyObject *place = PyDict_GetItem(self->places, name);
    if (!place) {
      if (read_option(name, args[given_count + i], options) != USUAL) return UNUSUAL;
      continue;
    }
    Py_ssize_t at = PyLong_AsSsize_t(place);
    if (placed[at]) return UNUSUAL;
    placed[at] = args[given_count + i];
  }
  return USUAL;
}

/* UNUSUAL where the user's code raised: the slow path calls it again, and says whose it is. */
static Outcome after_exception(void) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return ERROR;
  PyErr_Clear();
  return UNUSUAL;
}

static Outcome add_functions(Launcher *self, PyObject **placed, Words *words) {
  Py_ssize_t count = PyTuple_GET_SIZE(self->functions);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *pair = PyTuple_GET_ITEM(self->functions, i);
    PyObject *indices = PyTuple_GET_ITEM(pair, 1);
    Py_ssize_t needed = PyTuple_GET_SIZE(indices);
    PyObject *needs[MOST_PARAMETERS];
    for (Py_ssize_t j = 0; j < needed; j++) {
      needs[j] = placed[PyLong_AsSsize_t(PyTuple_GET_ITEM(indices, j))];
      if (!needs[j]) return UNUSUAL;
    }
    PyObject *result = PyObject_Vectorcall(PyTuple_GET_ITEM(pair, 0), needs, (size_t)needed, NULL);
    if (!result) return after_exception();
    Outcome outcome = add_value(&self->kinds, words, result);
    Py_DECREF(result);
    if (outcome != USUAL) return outcome;
  }
  return USUAL;
}

static Outcome make_words(Launcher *self, PyObject **placed, uint64_t options, Words *words) {
  add(words, (uint64_t)words->device);
  for (int i = 0; i < self->count; i++) {
    Outcome outcome = add_argument(&self->kinds, words, placed[i], i, self->modes[i]);
    if (outcome != USUAL) return outcome;
  }
  add(words, options);
  if (!PyTuple_GET_SIZE(self->functions)) return USUAL;
  Outcome outcome = add_functions(self, placed, words);
  return outcome == USUAL ? read_tensors_again(&self->kinds, words, placed) : outcome;
}

static bool all_quiet(const Launcher *self) {
  Py_ssize_t count = PyTuple_GET_SIZE(self->quiet);
  for (Py_ssize_t i = 0; i < count; i++)
    if (PyList_GET_SIZE(PyTuple_GET_ITEM(self->quiet, i))) return false;
  return true;
}

/* The value of a parameter in this launch, borrowed. */
static PyObject *value_of(const Plan *plan, PyObject **placed, Py_ssize_t i) {
  return placed[i] ? placed[i] : PyTuple_GET_ITEM(plan->values, i);
}

/* Calls a grid function with the launch's values by name. */
static PyObject *call_grid(Launcher *self, const Plan *plan, PyObject *grid, PyObject **placed) {
  PyObject *named = PyDict_New();
  int failed = !named;
  for (Py_ssize_t i = 0; i < self->count && !failed; i++) {
    PyObject *value = value_of(plan, placed, i);
    failed = value != given && PyDict_SetItem(named, PyTuple_GET_ITEM(self->names, i), value) < 0;
  }
  PyObject *sizes = failed ? NULL : PyObject_CallOneArg(grid, named);
  Py_XDECREF(named);
  return sizes;
}

/* What Triton calls a config's hook and the first rule with: the arguments that are given, the config's own,
 * and the grid. */
static PyObject *seen_by_user(const Launcher *self, const Plan *plan, PyObject *grid, PyObject *const *placed) {
  PyObject *seen = PyDict_Copy(plan->chosen);
  int failed = !seen || PyDict_SetItemString(seen, "grid", grid) < 0 ||
               PyDict_SetItemString(seen, "warmup", Py_False) < 0;
  for (Py_ssize_t i = 0; i < self->count && !failed; i++)
    failed = placed[i] && PyDict_SetItem(seen, PyTuple_GET_ITEM(self->names, i), placed[i]) < 0;
  if (failed) Py_CLEAR(seen);
  return seen;
}

/* The config's own hook, called before the grid as Triton does. */
static Outcome call_hook(Launcher *self, const Plan *plan, PyObject *grid, PyObject *const *placed) {
  if (!plan->hook) return USUAL;
  PyObject *seen = seen_by_user(self, plan, grid, placed);
  PyObject *result = seen ? PyObject_CallOneArg(plan->hook, seen) : NULL;
  Py_XDECREF(seen);
  Py_XDECREF(result);
  return result ? USUAL : ERROR;
}

/* Reads one to three whole numbers, none below 0; the driver's limits along each axis. */
static Outcome read_grid(PyObject *grid, long long *sizes) {
  static const long long MOST[3] = {INT32_MAX, UINT16_MAX, UINT16_MAX};
  if (!PyTuple_CheckExact(grid) && !PyList_CheckExact(grid)) return UNUSUAL;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(grid);
  if (count < 1 || count > 3) return UNUSUAL;
  sizes[1] = sizes[2] = 1;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *size = PySequence_Fast_GET_ITEM(grid, i);
    int overflow;
    if (!PyLong_CheckExact(size)) return UNUSUAL;
    sizes[i] = PyLong_AsLongLongAndOverflow(size, &overflow);
    if (overflow || sizes[i] < 0 || sizes[i] > MOST[i]) return UNUSUAL;
  }
  return USUAL;
}

/* A kernel's parameters in a launch: the driver reads each where its pointer says. */
typedef struct {
  uint64_t packed[MOST_SLOTS];
  void *parameters[MOST_SLOTS];
  _Alignas(128) unsigned char maps[MOST_DESCRIPTORS][MAP_BYTES];
} Parameters;

/* UNUSUAL where the kernel was compiled for another block or layout. */
static Outcome check_block(const Described *one, const Descriptor *given_as) {
  if (one->rank != given_as->rank || memcmp(one->block, given_as->block, sizeof one->block)) return UNUSUAL;
  if (one->layout == given_as->layout) return USUAL;
  if (!one->layout || !given_as->layout) return UNUSUAL;
  int equal = PyObject_RichCompareBool(one->layout, given_as->layout, Py_EQ);
  return equal < 0 ? ERROR : equal ? USUAL : UNUSUAL;
}

/* The last map of a parameter is kept: most launches describe the same tensor. */
static Outcome make_map(Described *one, const Descriptor *given_as, unsigned char *map) {
  if (memcmp(&one->last, given_as, offsetof(Descriptor, block))) {
    Outcome outcome = driver_encode(one, given_as, map);
    if (outcome != USUAL) return outcome;
    memcpy(one->map, map, MAP_BYTES);
    one->last = *given_as;
    one->last.layout = NULL; /* is no part of the map */
    return USUAL;
  }
  memcpy(map, one->map, MAP_BYTES);
  return USUAL;
}

static Outcome make_maps(const Plan *plan, const Words *words, Parameters *made) {
  for (int i = 0; i < plan->described_count; i++) {
    Described *one = &plan->described[i];
    const Descriptor *given_as = descriptor_of(words, one->index);
    Outcome outcome = given_as ? check_block(one, given_as) : UNUSUAL;
    if (outcome == USUAL && one->is_mapped) outcome = make_map(one, given_as, made->maps[i]);
    if (outcome != USUAL) return outcome;
  }
  return USUAL;
}

/* A part of a descriptor; its map is no number. */
static Outcome pack_part(const Described *one, const Slot *slot, const Descriptor *given_as, uint64_t *packed) {
  bool last = (int)slot->constant == one->rank - 1;
  int64_t extent = given_as->shape[slot->constant] << (last && one->is_mapped && one->shared_bytes);
  if (slot->kind == EXTENT && (extent < INT32_MIN || extent > INT32_MAX)) return UNUSUAL;
  *packed = slot->kind == ADDRESS  ? given_as->pointer
            : slot->kind == PADDED ? (uint64_t)given_as->padded
            : slot->kind == STRIDE ? (uint64_t)given_as->strides[slot->constant]
                                   : (uint64_t)extent;
  return USUAL;
}

/* Where the driver reads a parameter. */
static void *place_of(const Plan *plan, int slot, Parameters *made) {
  if (plan->slots[slot].kind != MAP) return &made->packed[slot];
  return made->maps[described_of(plan, plan->slots[slot].index) - plan->described];
}

static Outcome pack_parameters(const Plan *plan, PyObject **placed, const Words *words, Parameters *made) {
  Outcome outcome = make_maps(plan, words, made);
  for (int i = 0; i < plan->slot_count && outcome == USUAL; i++) {
    const Slot *slot = &plan->slots[i];
    made->parameters[i] = place_of(plan, i, made);
    if (slot->index < 0)
      made->packed[i] = slot->constant;
    else if (slot->kind == POINTER)
      made->packed[i] = words->pointers[slot->index];
    else if (slot->kind < VALUES)
      outcome = pack(slot->kind, placed[slot->index], &made->packed[i]);
    else if (slot->kind != MAP)
      outcome = pack_part(described_of(plan, slot->index), slot, descriptor_of(words, slot->index), &made->packed[i]);
  }
  return outcome;
}

/* Memory for the kernel's programs from the allocator that Triton would ask; owned, or NULL. */
static PyObject *allocate_scratch(const Plan *plan, const long long *grid, PyObject *stream, uint64_t *address) {
  unsigned long long size = (unsigned long long)(grid[0] * grid[1] * grid[2]) * plan->scratch;
  PyObject *allocate = PyObject_CallNoArgs(plan->allocator);
  PyObject *memory = allocate ? PyObject_CallFunction(allocate, "KIO", size, plan->alignment, stream) : NULL;
  /* As for Triton, it may be an address, or None. */
  bool plain = memory && (PyLong_Check(memory) || memory == Py_None);
  PyObject *number = plain ? Py_NewRef(memory) : memory ? PyObject_CallMethod(memory, "data_ptr", NULL) : NULL;
  *address = number && number != Py_None ? PyLong_AsUnsignedLongLong(number) : 0;
  Py_XDECREF(allocate);
  Py_XDECREF(number);
  if (PyErr_Occurred()) Py_CLEAR(memory);
  return memory;
}

static Outcome launch_natively(const Plan *plan, PyObject **placed, const Words *words, const long long *grid,
                               PyObject *stream) {
  Parameters made;
  uint64_t queue = PyLong_AsUnsignedLongLong(stream);
  if (queue == (uint64_t)-1 && PyErr_Occurred()) return ERROR;
  Outcome outcome = pack_parameters(plan, placed, words, &made);
  if (outcome != USUAL) return outcome;
  PyObject *memory = NULL;
  if (plan->scratch) { /* the last but one parameter of every kernel of Triton's */
    memory = allocate_scratch(plan, grid, stream, &made.packed[plan->slot_count - 2]);
    if (!memory) return ERROR;
  }
  int failed = driver_launch(plan, grid, queue, made.parameters) < 0;
  Py_XDECREF(memory);
  return failed ? ERROR : USUAL;
}

/* Through Triton's own launcher: tuples, and what profilers ask for. */
static Outcome launch_by_relay(Launcher *self, const Plan *plan, PyObject **placed, const long long *grid,
                               PyObject *stream) {
  PyObject *args[4 + 16 + MOST_PARAMETERS];
  Py_ssize_t count = 0, between = PyTuple_GET_SIZE(plan->between);
  if (between > 16) return UNUSUAL;
  for (int i = 0; i < 3; i++) {
    args[count] = PyLong_FromLongLong(grid[i]);
    if (!args[count]) {
      while (count) Py_DECREF(args[--count]);
      return ERROR;
    }
    count++;
  }
  args[count++] = stream;
  for (Py_ssize_t i = 0; i < between; i++) args[count++] = PyTuple_GET_ITEM(plan->between, i);
  for (Py_ssize_t i = 0; i < self->count; i++) args[count++] = value_of(plan, placed, i);
  PyObject *result = PyObject_Vectorcall(plan->relay, args, (size_t)count, NULL);
  for (int i = 0; i < 3; i++) Py_DECREF(args[i]);
  Py_XDECREF(result);
  return result ? USUAL : ERROR;
}

/* What is known of a launch while it is made. */
typedef struct {
  Words words;
  bool worded;    /* the words are those of the arguments as they are now */
  uint64_t options;
  int64_t began;  /* see `count_from` */
  PyObject *hook; /* that has been called, owned */
  PyObject *chosen; /* the config's values that all rules have been called with, owned; or NULL */
  Py_ssize_t computed_count;
  PyObject *computed[MOST_RULES]; /* results of the rules, owned */
} Progress;

/* Calls the rules in order, each with the results of those before, and takes their results for arguments. */
static Outcome call_rules(Launcher *self, const Plan *plan, PyObject *grid, PyObject **placed, Progress *progress) {
  PyObject *seen = seen_by_user(self, plan, grid, placed);
  Outcome outcome = seen ? USUAL : ERROR;
  for (Py_ssize_t i = 0; i < self->rule_count && outcome == USUAL; i++) {
    PyObject *rule = PyTuple_GET_ITEM(self->rules, i), *own = PyDict_Copy(seen); /* a rule may change it */
    PyObject *result = own ? PyObject_CallOneArg(PyTuple_GET_ITEM(rule, 1), own) : NULL;
    Py_XDECREF(own);
    if (!result) {
      outcome = after_exception();
      break;
    }
    progress->computed[progress->computed_count++] = result;
    if (PyDict_SetItem(seen, PyTuple_GET_ITEM(rule, 0), result) < 0) outcome = ERROR;
  }
  Py_XDECREF(seen);
  if (outcome == USUAL) progress->chosen = Py_NewRef(plan->chosen);
  for (Py_ssize_t i = 0; i < self->rule_count && outcome == USUAL; i++)
    if (self->facts[i].place >= 0) placed[self->facts[i].place] = progress->computed[i];
  return outcome;
}

/* The words of the rules' results, behind those of the arguments. */
static Outcome add_computed(const Launcher *self, PyObject *const *computed, Words *words) {
  for (Py_ssize_t i = 0; i < self->rule_count; i++) {
    int place = self->facts[i].place;
    if (!self->facts[i].counts) continue;
    bool runtime = place >= 0 && !(self->modes[place] & CONSTEXPR);
    PyTypeObject *type = Py_TYPE(computed[i]);
    if (runtime && (one_of(type, self->kinds.tensors) || one_of(type, self->kinds.descriptors))) return UNUSUAL;
    Outcome outcome = runtime ? add_class(&self->kinds, words, computed[i], place)
                              : add_value(&self->kinds, words, computed[i]);
    if (outcome != USUAL) return outcome;
  }
  return USUAL;
}

/* Puts the plan of the rules' results in the place of the one that the arguments alone led to. */
static Outcome follow_rules(Launcher *self, Plan **plan, PyObject *grid, PyObject **placed, Progress *progress) {
  Words *words = &progress->words;
  Py_ssize_t count = words->count;
  Outcome outcome = call_rules(self, *plan, grid, placed, progress);
  if (outcome == USUAL) outcome = add_computed(self, progress->computed, words);
  PyObject *own = outcome == USUAL ? Py_XNewRef(table_find(&self->table, words)) : NULL;
  words->count = count; /* the slow path keeps a plan by the arguments' */
  if (outcome != USUAL || !own) return outcome == USUAL ? UNUSUAL : outcome;
  Py_SETREF(*plan, (Plan *)own);
  return guards_hold(*plan) ? USUAL : UNUSUAL;
}

static Outcome make_grid(Launcher *self, const Plan *plan, PyObject *grid, PyObject **placed, long long *sizes) {
  bool callable = !PyTuple_CheckExact(grid) && PyCallable_Check(grid);
  PyObject *called = callable ? call_grid(self, plan, grid, placed) : Py_NewRef(grid);
  if (!called) return ERROR;
  Outcome outcome = read_grid(called, sizes);
  Py_DECREF(called);
  return outcome;
}

/* Runs the user's code, reads the grid, and reads again what that code may have changed. */
static Outcome prepare(Launcher *self, Plan **plan, PyObject *grid, PyObject **placed, Progress *progress,
                       long long *sizes) {
  uint64_t generation = self->generation;
  progress->hook = Py_XNewRef((*plan)->hook);
  if (call_hook(self, *plan, grid, placed) == ERROR) return ERROR;
  Outcome outcome = self->rule_count ? follow_rules(self, plan, grid, placed, progress) : USUAL;
  /* Hook and rules saw a config that has been forgotten meanwhile: what was found may have another. */
  if (outcome == USUAL && self->rule_count && generation != self->generation) outcome = UNUSUAL;
  if (outcome == USUAL) outcome = make_grid(self, *plan, grid, placed, sizes);
  if (outcome == ERROR || (PyTuple_CheckExact(grid) && !progress->hook && !self->rule_count)) return outcome;
  Outcome again = read_tensors_again(&self->kinds, &progress->words, placed);
  progress->worded = again == USUAL;
  return again == USUAL ? outcome : again;
}

static Outcome notify(Launcher *self, const Plan *plan, const long long *grid, PyObject **placed) {
  PyObject *hear = Py_NewRef(observer), *values = PyTuple_New(plan ? self->count : 0), *answer = NULL;
  for (Py_ssize_t i = 0; plan && values && i < self->count; i++)
    PyTuple_SET_ITEM(values, i, Py_NewRef(value_of(plan, placed, i)));
  if (values && plan)
    answer = PyObject_CallFunction(hear, "OO(LLL)O", self, plan, grid[0], grid[1], grid[2], values);
  else if (values)
    answer = PyObject_CallFunction(hear, "OOOO", self, Py_None, Py_None, Py_None);
  Py_DECREF(hear);
  Py_XDECREF(values);
  Py_XDECREF(answer);
  return answer ? USUAL : ERROR;
}

/* Launches with a plan that was found, or the one that it leads to; UNUSUAL where the slow path must.
 * A grid of no programs launches nothing. */
static Outcome launch_planned(Launcher *self, Plan **found, PyObject *grid, PyObject **placed,
                              Progress *progress, PyObject *device) {
  long long sizes[3];
  if (!all_quiet(self) || !(self->rule_count || guards_hold(*found))) return UNUSUAL;
  if (progress->options && ((*found)->hook || self->rule_count)) return UNUSUAL; /* these see options too */
  Outcome outcome = prepare(self, found, grid, placed, progress, sizes);
  if (outcome != USUAL) return outcome;
  const Plan *plan = *found;
  if (!sizes[0] || !sizes[1] || !sizes[2]) return observer ? notify(self, plan, sizes, placed) : USUAL;
  PyObject *stream = PyObject_CallOneArg(self->stream, device);
  if (!stream) return ERROR;
  if (!plan->function) {
    outcome = launch_by_relay(self, plan, placed, sizes, stream);
  } else if (!driver_ready() || (has_attributes(plan) && !driver.launch_with)) {
    outcome = UNUSUAL;
  } else {
    outcome = launch_natively(plan, placed, &progress->words, sizes, stream);
  }
  Py_DECREF(stream);
  if (outcome == USUAL) count_launch(*found, progress->began);
  return outcome == USUAL && observer ? notify(self, plan, sizes, placed) : outcome;
}

/* A tuple and a dict of a vectorcall's arguments. */
static int pack_arguments(PyObject *const *args, Py_ssize_t given_count, PyObject *names, PyObject **positional,
                          PyObject **named) {
  *positional = PyTuple_New(given_count);
  *named = PyDict_New();
  if (!*positional || !*named) return -1;
  for (Py_ssize_t i = 0; i < given_count; i++) PyTuple_SET_ITEM(*positional, i, Py_NewRef(args[i]));
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++)
    if (PyDict_SetItem(*named, PyTuple_GET_ITEM(names, i), args[given_count + i]) < 0) return -1;
  return 0;
}

/* Words as bytes, None for none, and a tuple of what they hold. */
static int pack_words(const Words *words, PyObject **key, PyObject **held) {
  *key = words ? PyBytes_FromStringAndSize((const char *)words->words, words->count * (Py_ssize_t)sizeof(uint64_t))
               : Py_NewRef(Py_None);
  *held = PyTuple_New(words ? words->held_count : 0);
  if (!*key || !*held) return -1;
  for (Py_ssize_t i = 0; words && i < words->held_count; i++)
    PyTuple_SET_ITEM(*held, i, Py_NewRef(words->held[i]));
  return 0;
}

/* A tuple of the rules' results; None where not all rules returned. */
static PyObject *pack_computed(const Progress *progress) {
  if (!progress->chosen) return Py_NewRef(Py_None);
  PyObject *results = PyTuple_New(progress->computed_count);
  for (Py_ssize_t i = 0; results && i < progress->computed_count; i++)
    PyTuple_SET_ITEM(results, i, Py_NewRef(progress->computed[i]));
  return results;
}

static PyObject *launch_slowly(Launcher *self, PyObject *grid, PyObject *const *args, Py_ssize_t given_count,
                               PyObject *names, const Progress *progress) {
  PyObject *result = NULL, *key = NULL, *held = NULL, *positional = NULL, *named = NULL, *computed = NULL;
  if (observer && notify(self, NULL, NULL, NULL) == ERROR) return NULL;
  if (pack_arguments(args, given_count, names, &positional, &named) == 0 &&
      pack_words(progress->worded ? &progress->words : NULL, &key, &held) == 0 &&
      (computed = pack_computed(progress))) {
    PyObject *hook = progress->hook ? progress->hook : Py_None;
    PyObject *all[8] = {grid, positional, named, key, held, hook, progress->chosen, computed};
    result = PyObject_Vectorcall(self->slow, all, progress->chosen ? 8 : 6, NULL);
  }
  Py_XDECREF(positional);
  Py_XDECREF(named);
  Py_XDECREF(key);
  Py_XDECREF(held);
  Py_XDECREF(computed);
  return result;
}

static PyObject *launch(Launcher *self, PyObject *grid, PyObject *const *args, Py_ssize_t given_count,
                        PyObject *names) {
  PyObject *placed[MOST_PARAMETERS], *result = NULL;
  Progress progress;
  Words *words = &progress.words;
  words_begin(words);
  progress.began = count_from();
  progress.hook = progress.chosen = NULL;
  progress.computed_count = 0;
  progress.options = 0;
  Plan *plan = NULL;
  PyObject *device = PyObject_CallNoArgs(self->device);
  if (!device) return NULL;
  words->device = PyLong_AsLongLong(device);
  Outcome outcome = place_arguments(self, args, given_count, names, placed, &progress.options);
  if (outcome == USUAL) outcome = make_words(self, placed, progress.options, words);
  progress.worded = outcome == USUAL;
  if (progress.worded) {
    plan = (Plan *)Py_XNewRef(table_find(&self->table, words));
    outcome = plan ? launch_planned(self, &plan, grid, placed, &progress, device) : UNUSUAL;
  }
  if (outcome == USUAL) {
    if (self->last != (PyObject *)plan) Py_XSETREF(self->last, Py_NewRef(plan));
    result = Py_NewRef(plan->kernel);
  } else if (outcome == UNUSUAL) {
    result = launch_slowly(self, grid, args, given_count, names, &progress);
  }
  words_release(words);
  while (progress.computed_count) Py_DECREF(progress.computed[--progress.computed_count]);
  Py_XDECREF(progress.hook);
  Py_XDECREF(progress.chosen);
  Py_XDECREF(plan);
  Py_DECREF(device);
  return result;
}
