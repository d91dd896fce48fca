/* The module: types, their making and their end. */

static int read_names(Launcher *self, PyObject *names, const char *modes, Py_ssize_t mode_count) {
  self->count = PyTuple_GET_SIZE(names);
  if (self->count > MOST_PARAMETERS || mode_count != self->count || PyTuple_GET_SIZE(self->functions) > MOST_FUNCTIONS) {
    PyErr_SetString(PyExc_ValueError, "a launcher has too many parameters or functions");
    return -1;
  }
  memcpy(self->modes, modes, (size_t)mode_count);
  self->names = Py_NewRef(names);
  self->places = places_of(names);
  return self->places ? 0 : -1;
}

static int read_rules(Launcher *self) {
  self->rule_count = PyTuple_GET_SIZE(self->rules);
  self->first_computed = self->count;
  if (self->rule_count > MOST_RULES) {
    PyErr_SetString(PyExc_ValueError, "a launcher has too many rules");
    return -1;
  }
  for (Py_ssize_t i = 0; i < self->rule_count; i++) {
    PyObject *name, *function;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(self->rules, i), "UO", &name, &function)) return -1;
    PyObject *place = PyDict_GetItem(self->places, name);
    self->facts[i] = (Rule){place ? (int)PyLong_AsLong(place) : -1, true};
    if (place && self->facts[i].place < self->first_computed) self->first_computed = self->facts[i].place;
    for (Py_ssize_t j = 0; j < i; j++)
      if (!PyUnicode_Compare(PyTuple_GET_ITEM(PyTuple_GET_ITEM(self->rules, j), 0), name))
        self->facts[j].counts = false;
  }
  return 0;
}

static PyObject *Launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *names, *functions, *rules, *kinds, *device, *stream, *quiet, *slow;
  const char *modes;
  Py_ssize_t mode_count;
  if (kwargs && PyDict_GET_SIZE(kwargs)) {
    PyErr_SetString(PyExc_TypeError, "Launcher takes no keywords");
    return NULL;
  }
  if (!PyArg_ParseTuple(args, "O!y#O!O!O!(OO)O!O", &PyTuple_Type, &names, &modes, &mode_count, &PyTuple_Type,
                        &functions, &PyTuple_Type, &rules, &PyTuple_Type, &kinds, &device, &stream,
                        &PyTuple_Type, &quiet, &slow))
    return NULL;
  Launcher *self = (Launcher *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->functions = Py_NewRef(functions);
  self->rules = Py_NewRef(rules);
  self->device = Py_NewRef(device);
  self->stream = Py_NewRef(stream);
  self->quiet = Py_NewRef(quiet);
  self->slow = Py_NewRef(slow);
  self->last = Py_NewRef(Py_None);
  if (read_names(self, names, modes, mode_count) < 0 || read_rules(self) < 0 ||
      read_kinds(&self->kinds, &self->kinds_kept, kinds) < 0) {
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject *)self;
}

static int Launcher_traverse(Launcher *self, visitproc visit, void *arg) {
  Py_VISIT(self->functions);
  Py_VISIT(self->rules);
  Py_VISIT(self->slow);
  Py_VISIT(self->last);
  Py_VISIT(self->device);
  Py_VISIT(self->stream);
  for (Py_ssize_t i = 0; i < self->table.slots; i++) {
    if (!self->table.entries[i].words) continue;
    Py_VISIT(self->table.entries[i].plan);
    Py_VISIT(self->table.entries[i].held);
  }
  return 0;
}

static int Launcher_clear(Launcher *self) {
  table_clear(&self->table);
  Py_CLEAR(self->slow);
  Py_CLEAR(self->last);
  return 0;
}

static void Launcher_dealloc(Launcher *self) {
  PyObject_GC_UnTrack(self);
  Launcher_clear(self);
  Py_XDECREF(self->names);
  Py_XDECREF(self->places);
  Py_XDECREF(self->functions);
  Py_XDECREF(self->rules);
  Py_XDECREF(self->quiet);
  Py_XDECREF(self->device);
  Py_XDECREF(self->stream);
  Py_XDECREF(self->kinds_kept);
  Py_TYPE(self)->tp_free(self);
}

/* Keeps a plan under the words of the arguments, and under these with the words of the rules' results. */
static int keep_both(Launcher *self, Words *words, PyObject *plan, PyObject *held, PyObject *results) {
  Py_ssize_t count = words->count;
  Outcome outcome = add_computed(self, &PyTuple_GET_ITEM(results, 0), words);
  if (outcome != USUAL) return outcome == ERROR ? -1 : 0; /* such launches stay with the slow path */
  PyObject *more = PyTuple_New(words->held_count);
  for (Py_ssize_t i = 0; more && i < words->held_count; i++) PyTuple_SET_ITEM(more, i, Py_NewRef(words->held[i]));
  PyObject *all = more ? PySequence_Concat(held, more) : NULL;
  Py_XDECREF(more);
  int failed = !all || table_keep(&self->table, words->words, count, plan, all) < 0 ||
               table_keep(&self->table, words->words, words->count, plan, all) < 0;
  Py_XDECREF(all);
  return failed ? -1 : 0;
}

static PyObject *keep_computed(Launcher *self, PyObject *args) {
  const char *key;
  Py_ssize_t size;
  PyObject *plan, *held, *results;
  if (!PyArg_ParseTuple(args, "y#O!O!O!:keep", &key, &size, &PlanType, &plan, &PyTuple_Type, &held, &PyTuple_Type,
                        &results))
    return NULL;
  if (PyTuple_GET_SIZE(results) != self->rule_count) {
    PyErr_SetString(PyExc_ValueError, "a plan needs the result of each rule");
    return NULL;
  }
  Words words;
  words_begin(&words);
  if (copy_key(key, size, MOST_WORDS - 2 * MOST_RULES, words.words) < 0) return NULL;
  words.count = size / (Py_ssize_t)sizeof(uint64_t);
  int failed = keep_both(self, &words, plan, held, results);
  words_release(&words);
  if (failed) return NULL;
  Py_RETURN_NONE;
}

static PyObject *Launcher_keep(Launcher *self, PyObject *args) {
  PyObject *plan = PyTuple_GET_SIZE(args) > 1 ? PyTuple_GET_ITEM(args, 1) : Py_None;
  if (Py_IS_TYPE(plan, &PlanType) && PyTuple_GET_SIZE(((Plan *)plan)->values) != self->count) {
    PyErr_SetString(PyExc_ValueError, "the plan is of another launcher");
    return NULL;
  }
  if (self->rule_count) return keep_computed(self, args);
  Py_ssize_t used = self->table.used;
  PyObject *done = keep_in(&self->table, args, "y#O!O!:keep", &PlanType, &plan);
  /* Replaced, or emptied on the way: what was prepared by the old plans is prepared anew. */
  if (self->table.used <= used) self->generation++;
  return done;
}

static PyObject *Launcher_forget(Launcher *self, PyObject *Py_UNUSED(nothing)) {
  self->generation++;
  table_clear(&self->table);
  Py_XSETREF(self->last, Py_NewRef(Py_None));
  Py_RETURN_NONE;
}

static Py_ssize_t Launcher_length(Launcher *self) { return self->table.used; }

static PyObject *Bound_call(Bound *self, PyObject *const *args, size_t flags, PyObject *names) {
  return launch(self->launcher, self->grid, args, PyVectorcall_NARGS(flags), names);
}

static void Bound_dealloc(Bound *self) {
  Py_DECREF(self->launcher);
  Py_DECREF(self->grid);
  PyObject_Free(self);
}

static PyTypeObject BoundType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "asmtune_launch.Bound",
    .tp_basicsize = sizeof(Bound),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "A kernel with a grid; called with the kernel's arguments.",
    .tp_vectorcall_offset = offsetof(Bound, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)Bound_dealloc,
};

static PyObject *Launcher_bind(Launcher *self, PyObject *grid) {
  Bound *bound = PyObject_New(Bound, &BoundType);
  if (!bound) return NULL;
  bound->launcher = (Launcher *)Py_NewRef(self);
  bound->grid = Py_NewRef(grid);
  bound->vectorcall = (vectorcallfunc)Bound_call;
  return (PyObject *)bound;
}

static PyMethodDef Launcher_methods[] = {
    {"keep", (PyCFunction)Launcher_keep, METH_VARARGS,
     "keep(key, plan, held, results=()): the plan of a key, and of the rules' results."},
    {"forget", (PyCFunction)Launcher_forget, METH_NOARGS, "Forgets every plan."},
    {NULL, NULL, 0, NULL}};

static PyMemberDef Launcher_members[] = {
    {"rules", T_OBJECT_EX, offsetof(Launcher, rules), READONLY, "Names and functions of `@triton.heuristics`."},
    {"last", T_OBJECT_EX, offsetof(Launcher, last), 0, "The plan of the last launch; None where it was slow."},
    {NULL, 0, 0, 0, NULL}};

static PyMappingMethods Launcher_mapping = {.mp_length = (lenfunc)Launcher_length,
                                            .mp_subscript = (binaryfunc)Launcher_bind};

static PyTypeObject LauncherType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "asmtune_launch.Launcher",
    .tp_basicsize = sizeof(Launcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "The way of a launch: arguments, words, plan, grid, driver.",
    .tp_new = Launcher_new,
    .tp_dealloc = (destructor)Launcher_dealloc,
    .tp_traverse = (traverseproc)Launcher_traverse,
    .tp_clear = (inquiry)Launcher_clear,
    .tp_methods = Launcher_methods,
    .tp_members = Launcher_members,
    .tp_as_mapping = &Launcher_mapping,
};

static PyObject *open_driver(PyObject *Py_UNUSED(module), PyObject *args) {
  const char *library;
  if (!PyArg_ParseTuple(args, "s:open_driver", &library) || driver_open(library) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *open_tensors(PyObject *Py_UNUSED(module), PyObject *args) {
  const char *library;
  if (!PyArg_ParseTuple(args, "s:open_tensors", &library) || aten_open(library) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject *describe(PyObject *Py_UNUSED(module), PyObject *args) {
  PyObject *cdata, *tensor;
  TensorFacts facts;
  if (!PyArg_ParseTuple(args, "OO:describe", &cdata, &tensor)) return NULL;
  Outcome outcome = aten.data ? read_tensor(cdata, tensor, &facts) : UNUSUAL;
  if (outcome == ERROR) return NULL;
  if (outcome == UNUSUAL) Py_RETURN_NONE;
  PyObject *extents = PyTuple_New(2 * (Py_ssize_t)facts.dim);
  for (int64_t i = 0; extents && i < 2 * facts.dim; i++) {
    int64_t extent = i < facts.dim ? facts.sizes[i] : facts.strides[i - facts.dim];
    PyTuple_SET_ITEM(extents, i, PyLong_FromLongLong(extent));
  }
  return extents ? Py_BuildValue("KiN", (unsigned long long)(uintptr_t)facts.data, facts.device, extents) : NULL;
}

static PyObject *observe(PyObject *Py_UNUSED(module), PyObject *hear) {
  Py_XSETREF(observer, hear == Py_None ? NULL : Py_NewRef(hear));
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"open_driver", open_driver, METH_VARARGS, "open_driver(library): loads the CUDA driver."},
    {"open_tensors", open_tensors, METH_VARARGS, "open_tensors(library): finds PyTorch's C interface."},
    {"describe", describe, METH_VARARGS, "describe(_cdata, tensor): (address, device, sizes and strides), or None."},
    {"observe", observe, METH_O, "observe(function): is called after each launch; None for nobody."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "asmtune_launch", "Launches by plans.", -1, methods,
                                    NULL,                  NULL,             NULL,                 NULL};

PyMODINIT_FUNC PyInit_asmtune_launch(void) {
  PyObject *made = NULL;
  if (PyType_Ready(&PlanType) < 0 || PyType_Ready(&LauncherType) < 0 || PyType_Ready(&BoundType) < 0 ||
      PyType_Ready(&CallType) < 0 || PyType_Ready(&PreparedType) < 0)
    return NULL;
  static const char *const PARTS[] = {"base", "shape", "strides", "block_shape", "padding", "layout", "round_f32_to_tf32"};
  for (int i = 0; i < DESCRIPTOR_PARTS; i++)
    if (!(part_names[i] = PyUnicode_InternFromString(PARTS[i]))) return NULL;
  option_names[0] = PyUnicode_InternFromString("launch_pdl");
  option_names[1] = PyUnicode_InternFromString("launch_cooperative_grid");
  if (!option_names[0] || !option_names[1]) return NULL;
  given = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
  if (!given || !(made = PyModule_Create(&module))) return NULL;
  if (PyModule_AddObjectRef(made, "GIVEN", given) < 0 ||
      PyModule_AddObjectRef(made, "Plan", (PyObject *)&PlanType) < 0 ||
      PyModule_AddObjectRef(made, "Launcher", (PyObject *)&LauncherType) < 0 ||
      PyModule_AddObjectRef(made, "Call", (PyObject *)&CallType) < 0 ||
      PyModule_AddObjectRef(made, "Prepared", (PyObject *)&PreparedType) < 0) {
    Py_DECREF(made);
    return NULL;
  }
  return made;
}
