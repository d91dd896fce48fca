/* Arguments to words: what a launch's compiled kernel, config and grid may depend on.
 *
 * Two launches with equal words get the same kernel from Triton and the same config
 * from asmtune; the reverse need not hold. What has no words here is "unusual" and
 * takes the slow path, which is Python and Triton's own launch.
 *
 * A word is a small number, or the address of an object that lives as long as the
 * entry in the table, so that no other object can have its address meanwhile.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

enum { MOST_PARAMETERS = 64, MOST_FUNCTIONS = 16, MOST_RULES = 16, MOST_TYPES = 8 };
enum { MOST_DESCRIPTORS = 16, MOST_RANK = 5 };
/* A launcher fills 2 + 3 * MOST_PARAMETERS + 2 * (MOST_FUNCTIONS + MOST_RULES); signatures are checked. */
enum { MOST_WORDS = 512 };
enum { MOST_HELD = MOST_PARAMETERS + MOST_FUNCTIONS + MOST_RULES };

/* What a parameter is to the words: a runtime argument, whose class matters; a
 * constexpr, whose value does; either may be part of the key, then its value does. A rule
 * of `@triton.heuristics` computes the value of some, whatever the launch gives. */
enum { RUNTIME = 0, CONSTEXPR = 1, KEYED = 2, COMPUTED = 4 };

/* Classes of runtime arguments; an int's are INTEGER + the sum of what holds of it.
 * A tensor's class is the address of its dtype, plus 1 where its data is aligned to
 * 16 bytes: objects are aligned to 16 themselves, so that these bits are free. */
enum { ABSENT = 0, NONE = 1, BOOL = 2, FLOAT = 3, INT = 4, OBJECT = 5, INTEGER = 16 };
enum { IS_ONE = 1, BY_16 = 2, WIDE = 4 };

typedef enum { ERROR = -1, UNUSUAL = 0, USUAL = 1 } Outcome;

/* What the words need to know of PyTorch and Triton; made once. */
typedef struct {
  PyTypeObject *tensors[MOST_TYPES]; /* exact types: torch.Tensor, Parameter */
  PyTypeObject *frozen[MOST_TYPES];  /* immutable, compared by identity: dtypes, functions */
  PyTypeObject *descriptors[MOST_TYPES]; /* exact types of the host's tensor descriptors */
  PyObject *dtype;                   /* descriptors of torch.Tensor, which skip the lookup */
  PyObject *data_ptr;
  PyObject *get_device;
} Kinds;

static int read_types(PyObject *types, PyTypeObject **read) {
  Py_ssize_t count = PyTuple_GET_SIZE(types);
  if (count > MOST_TYPES) {
    PyErr_SetString(PyExc_ValueError, "a launcher has too many types");
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!PyType_Check(PyTuple_GET_ITEM(types, i))) {
      PyErr_SetString(PyExc_TypeError, "a launcher's types are types");
      return -1;
    }
    read[i] = (PyTypeObject *)PyTuple_GET_ITEM(types, i);
  }
  return 0;
}

static int read_kinds(Kinds *read, PyObject **kept, PyObject *kinds) {
  PyObject *tensors, *frozen, *descriptors;
  if (!PyArg_ParseTuple(kinds, "O!O!O!OOO", &PyTuple_Type, &tensors, &PyTuple_Type, &frozen, &PyTuple_Type,
                        &descriptors, &read->dtype, &read->data_ptr, &read->get_device))
    return -1;
  if (!Py_TYPE(read->dtype)->tp_descr_get) {
    PyErr_SetString(PyExc_TypeError, "a launcher's dtype is a descriptor");
    return -1;
  }
  *kept = Py_NewRef(kinds);
  if (read_types(tensors, read->tensors) < 0 || read_types(frozen, read->frozen) < 0) return -1;
  return read_types(descriptors, read->descriptors);
}

/* A dict of names' indices. */
static PyObject *places_of(PyObject *names) {
  PyObject *places = PyDict_New();
  for (Py_ssize_t i = 0; places && i < PyTuple_GET_SIZE(names); i++) {
    PyObject *place = PyLong_FromSsize_t(i);
    if (!place || PyDict_SetItem(places, PyTuple_GET_ITEM(names, i), place) < 0) Py_CLEAR(places);
    Py_XDECREF(place);
  }
  return places;
}

/* A tensor descriptor of the host, as a kernel gets it: unused extents are 0. */
typedef struct {
  uint64_t pointer;
  int64_t padded; /* what lies outside of the tensor is NaN, not 0 */
  int64_t shape[MOST_RANK], strides[MOST_RANK];
  int64_t block[MOST_RANK];
  int rank;
  PyObject *layout; /* owned by words; NULL where it has none */
} Descriptor;

typedef struct {
  int64_t device;
  Py_ssize_t count;
  uint64_t words[MOST_WORDS];
  Py_ssize_t held_count;
  PyObject *held[MOST_HELD]; /* owned, until words_release */
  uint64_t pointers[MOST_PARAMETERS]; /* of the arguments that are tensors */
  int tensor_count;
  int tensors[MOST_PARAMETERS];            /* their indices */
  Py_ssize_t tensor_words[MOST_PARAMETERS]; /* where their words are */
  int descriptor_count;
  int descriptors[MOST_DESCRIPTORS]; /* indices of the arguments that are descriptors */
  Py_ssize_t descriptor_words[MOST_DESCRIPTORS];
  Descriptor described[MOST_DESCRIPTORS];
} Words;

static void words_begin(Words *words) {
  words->count = words->held_count = 0;
  words->tensor_count = words->descriptor_count = 0;
}

static inline bool one_of(PyTypeObject *type, PyTypeObject *const *types) {
  for (int i = 0; i < MOST_TYPES && types[i]; i++)
    if (types[i] == type) return true;
  return false;
}

static inline void add(Words *words, uint64_t word) { words->words[words->count++] = word; }

static inline void add_object(Words *words, PyObject *object) {
  add(words, OBJECT);
  add(words, (uint64_t)(uintptr_t)object);
  words->held[words->held_count++] = Py_NewRef(object);
}

static void words_release(Words *words) {
  while (words->held_count) Py_DECREF(words->held[--words->held_count]);
  while (words->descriptor_count) Py_XDECREF(words->described[--words->descriptor_count].layout);
}

static Outcome call_int(PyObject *method, PyObject *object, int64_t *result) {
  PyObject *value = PyObject_Vectorcall(method, &object, 1, NULL);
  if (!value) return ERROR;
  *result = (int64_t)PyLong_AsLongLong(value);
  Py_DECREF(value);
  return (*result == -1 && PyErr_Occurred()) ? ERROR : USUAL;
}

/* Two words of a value that is compared as a whole. */
static Outcome add_value(const Kinds *kinds, Words *words, PyObject *value) {
  PyTypeObject *type = Py_TYPE(value);
  if (value == Py_None) {
    add(words, NONE);
    add(words, 0);
  } else if (type == &PyBool_Type) {
    add(words, BOOL);
    add(words, value == Py_True);
  } else if (type == &PyLong_Type) {
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) return UNUSUAL;
    add(words, INT);
    add(words, (uint64_t)number);
  } else if (type == &PyFloat_Type) {
    double number = PyFloat_AS_DOUBLE(value);
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    add(words, FLOAT);
    add(words, bits);
  } else if (type == &PyUnicode_Type) {
    PyObject *interned = Py_NewRef(value); /* equal strings are one object then */
    PyUnicode_InternInPlace(&interned);
    add_object(words, interned);
    Py_DECREF(interned);
  } else if (one_of(type, kinds->frozen)) {
    add_object(words, value);
  } else {
    return UNUSUAL;
  }
  return USUAL;
}

/* The word of a tensor on the device, and its address now. */
static Outcome tensor_word(const Kinds *kinds, PyObject *tensor, int64_t device, uint64_t *pointer,
                           uint64_t *word) {
  int64_t address, own_device;
  if (call_int(kinds->get_device, tensor, &own_device) == ERROR) return ERROR;
  if (own_device != device) return UNUSUAL;
  if (call_int(kinds->data_ptr, tensor, &address) == ERROR) return ERROR;
  PyObject *dtype = Py_TYPE(kinds->dtype)->tp_descr_get(kinds->dtype, tensor, (PyObject *)Py_TYPE(tensor));
  if (!dtype) return ERROR;
  Py_DECREF(dtype); /* PyTorch's dtypes live as long as the process */
  *pointer = (uint64_t)address;
  *word = (uint64_t)(uintptr_t)dtype | ((address & 15) == 0);
  return USUAL;
}

static Outcome add_tensor(const Kinds *kinds, Words *words, PyObject *tensor, int index) {
  uint64_t word;
  Outcome outcome = tensor_word(kinds, tensor, words->device, &words->pointers[index], &word);
  if (outcome != USUAL) return outcome;
  words->tensors[words->tensor_count] = index;
  words->tensor_words[words->tensor_count++] = words->count;
  add(words, word);
  return USUAL;
}

enum { BASE, SHAPE, STRIDES, BLOCK_SHAPE, PADDING, LAYOUT, ROUNDS, DESCRIPTOR_PARTS };
static PyObject *part_names[DESCRIPTOR_PARTS]; /* interned; made with the module */

/* Reads whole numbers of a list or a tuple; each of a descriptor's has as many. */
static bool read_extents(PyObject *values, int *rank, int64_t *read) {
  if (!values || !(PyList_CheckExact(values) || PyTuple_Check(values))) return false;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(values);
  if (count < 1 || count > MOST_RANK || (*rank && count != *rank)) return false;
  *rank = (int)count;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *value = PySequence_Fast_GET_ITEM(values, i);
    int overflow;
    if (!PyLong_CheckExact(value)) return false;
    read[i] = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) return false;
  }
  return true;
}

/* Its tensor's word, with a bit that no tensor's has. One that rounds to TF32, as it can since Triton 3.7,
 * has another map and other parameters: Triton launches it. A mode of functions may run Python in between, and
 * another thread change the descriptor. */
static Outcome read_descriptor(const Kinds *kinds, PyObject *value, int64_t device, Descriptor *read,
                               uint64_t *word) {
  PyObject *attributes = PyObject_GenericGetDict(value, NULL), *parts[DESCRIPTOR_PARTS];
  if (!attributes) return ERROR;
  for (int i = 0; i < DESCRIPTOR_PARTS; i++) parts[i] = PyDict_GetItem(attributes, part_names[i]);
  *read = (Descriptor){0};
  Outcome outcome = UNUSUAL;
  bool plain = !parts[ROUNDS] || parts[ROUNDS] == Py_False;
  if (plain && parts[BASE] && one_of(Py_TYPE(parts[BASE]), kinds->tensors) && parts[PADDING] &&
      PyUnicode_CheckExact(parts[PADDING]) && read_extents(parts[SHAPE], &read->rank, read->shape) &&
      read_extents(parts[STRIDES], &read->rank, read->strides) &&
      read_extents(parts[BLOCK_SHAPE], &read->rank, read->block) && read->strides[read->rank - 1] == 1) {
    read->padded = PyUnicode_CompareWithASCIIString(parts[PADDING], "nan") == 0;
    PyObject *base = Py_NewRef(parts[BASE]), *layout = Py_XNewRef(parts[LAYOUT]);
    outcome = tensor_word(kinds, base, device, &read->pointer, word);
    *word |= 2;
    Py_DECREF(base);
    if (outcome == USUAL) read->layout = layout;
    else Py_XDECREF(layout);
  }
  Py_DECREF(attributes);
  return outcome;
}

/* Two words: a kernel is compiled for a descriptor's dtype and block. */
static Outcome add_descriptor(const Kinds *kinds, Words *words, PyObject *value, int index) {
  if (words->descriptor_count == MOST_DESCRIPTORS) return UNUSUAL;
  Descriptor *read = &words->described[words->descriptor_count];
  uint64_t word = 0, block = 0;
  Outcome outcome = read_descriptor(kinds, value, words->device, read, &word);
  if (outcome != USUAL) return outcome;
  for (int i = 0; i < read->rank; i++) {
    if (read->block[i] < 1 || read->block[i] > INT32_MAX || read->block[i] & (read->block[i] - 1)) {
      Py_CLEAR(read->layout);
      return UNUSUAL;
    }
    block = block << 6 | (uint64_t)(1 + __builtin_ctzll((unsigned long long)read->block[i]));
  }
  words->descriptors[words->descriptor_count] = index;
  words->descriptor_words[words->descriptor_count++] = words->count;
  add(words, word);
  add(words, block);
  return USUAL;
}

static const Descriptor *descriptor_of(const Words *words, int index) {
  for (int i = 0; i < words->descriptor_count; i++)
    if (words->descriptors[i] == index) return &words->described[i];
  return NULL;
}

/* Reads the tensors again after code of the user ran, which may have given them other memory.
 * UNUSUAL where the word of one has changed: another kernel may be needed. A descriptor's block may
 * have changed: a config's hook sets it. */
static Outcome read_tensors_again(const Kinds *kinds, Words *words, PyObject **placed) {
  for (int i = 0; i < words->descriptor_count; i++) {
    uint64_t word = 0;
    PyObject *value = placed[words->descriptors[i]], *before = words->described[i].layout;
    Outcome outcome = read_descriptor(kinds, value, words->device, &words->described[i], &word);
    Py_XDECREF(before);
    if (outcome != USUAL) return outcome;
    if (word != words->words[words->descriptor_words[i]]) return UNUSUAL;
  }
  for (int i = 0; i < words->tensor_count; i++) {
    uint64_t word;
    int index = words->tensors[i];
    Outcome outcome = tensor_word(kinds, placed[index], words->device, &words->pointers[index], &word);
    if (outcome != USUAL) return outcome;
    if (word != words->words[words->tensor_words[i]]) return UNUSUAL;
  }
  return USUAL;
}

/* One word: what Triton's launcher specialises a runtime argument by, or finer. */
static Outcome add_class(const Kinds *kinds, Words *words, PyObject *value, int index) {
  PyTypeObject *type = Py_TYPE(value);
  if (one_of(type, kinds->tensors)) return add_tensor(kinds, words, value, index);
  if (one_of(type, kinds->descriptors)) return add_descriptor(kinds, words, value, index);
  if (type == &PyLong_Type) {
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) return UNUSUAL;
    bool wide = number < INT32_MIN || number > INT32_MAX;
    add(words, INTEGER + (number == 1) * IS_ONE + (number % 16 == 0) * BY_16 + wide * WIDE);
  } else if (type == &PyFloat_Type) {
    add(words, FLOAT);
  } else if (type == &PyBool_Type) {
    add(words, BOOL);
  } else if (value == Py_None) {
    add(words, NONE);
  } else {
    return UNUSUAL;
  }
  return USUAL;
}

/* What a launch gives for a computed parameter: a number counts where the key names it alone. */
static Outcome add_overwritten(const Kinds *kinds, Words *words, PyObject *value, int mode) {
  Py_ssize_t count = words->count, held = words->held_count;
  Outcome outcome = add_value(kinds, words, value);
  if (outcome == USUAL && !(mode & KEYED) && words->held_count == held) {
    words->count = count;
    add(words, ABSENT);
  }
  return outcome;
}

static Outcome add_argument(const Kinds *kinds, Words *words, PyObject *value, int index,
                            int mode) {
  if (!value) {
    add(words, ABSENT);
    return USUAL;
  }
  if (mode & COMPUTED) return add_overwritten(kinds, words, value, mode);
  if (!(mode & CONSTEXPR)) {
    Outcome outcome = add_class(kinds, words, value, index);
    if (outcome != USUAL || !(mode & KEYED)) return outcome;
  }
  return add_value(kinds, words, value);
}
