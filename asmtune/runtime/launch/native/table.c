/* Words to plans: an open-addressing table of at most MOST_ENTRIES entries. */

enum { FEWEST_SLOTS = 64, MOST_ENTRIES = 4096 };

typedef struct {
  uint64_t hash;
  Py_ssize_t count;
  uint64_t *words; /* NULL: the slot is free */
  PyObject *plan;
  PyObject *held;
} Entry;

typedef struct {
  Entry *entries;
  Py_ssize_t slots; /* a power of two, or 0 */
  Py_ssize_t used;
} Table;

static uint64_t hash_of(const uint64_t *words, Py_ssize_t count) {
  uint64_t hash = 0x9E3779B97F4A7C15ull ^ (uint64_t)count;
  for (Py_ssize_t i = 0; i < count; i++) {
    hash = (hash ^ words[i]) * 0xD6E8FEB86659FD93ull;
    hash ^= hash >> 32;
  }
  return hash;
}

static Entry *slot_of(const Table *table, uint64_t hash, const uint64_t *words, Py_ssize_t count) {
  Py_ssize_t mask = table->slots - 1;
  for (Py_ssize_t at = (Py_ssize_t)(hash & (uint64_t)mask);; at = (at + 1) & mask) {
    Entry *entry = &table->entries[at];
    if (!entry->words) return entry;
    if (entry->hash == hash && entry->count == count &&
        memcmp(entry->words, words, (size_t)count * sizeof *words) == 0)
      return entry;
  }
}

/* A borrowed plan, or NULL. */
static PyObject *table_find(const Table *table, const Words *words) {
  if (!table->used) return NULL;
  Entry *entry = slot_of(table, hash_of(words->words, words->count), words->words, words->count);
  return entry->words ? entry->plan : NULL;
}

static void table_clear(Table *table) {
  Table old = *table;
  *table = (Table){0}; /* first, since a plan's end may come back here */
  for (Py_ssize_t i = 0; i < old.slots; i++) {
    if (!old.entries[i].words) continue;
    PyMem_Free(old.entries[i].words);
    Py_XDECREF(old.entries[i].plan);
    Py_XDECREF(old.entries[i].held);
  }
  PyMem_Free(old.entries);
}

static int table_grow(Table *table) {
  Table grown = {.slots = table->slots ? 2 * table->slots : FEWEST_SLOTS, .used = table->used};
  grown.entries = PyMem_Calloc((size_t)grown.slots, sizeof(Entry));
  if (!grown.entries) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < table->slots; i++) {
    Entry *entry = &table->entries[i];
    if (entry->words) *slot_of(&grown, entry->hash, entry->words, entry->count) = *entry;
  }
  PyMem_Free(table->entries);
  *table = grown;
  return 0;
}

/* Takes no reference: makes its own. A full table is emptied: a program that meets
 * thousands of keys pays the slow path now and then, and no memory without end. */
static int table_keep(Table *table, const uint64_t *words, Py_ssize_t count, PyObject *plan, PyObject *held) {
  if (table->used >= MOST_ENTRIES) table_clear(table);
  if (2 * (table->used + 1) > table->slots && table_grow(table) < 0) return -1;
  uint64_t hash = hash_of(words, count);
  Entry *entry = slot_of(table, hash, words, count);
  PyObject *old_plan = entry->plan, *old_held = entry->held;
  if (!entry->words) {
    entry->words = PyMem_Malloc((size_t)count * sizeof *words);
    if (!entry->words) {
      PyErr_NoMemory();
      return -1;
    }
    memcpy(entry->words, words, (size_t)count * sizeof *words);
    entry->hash = hash;
    entry->count = count;
    table->used++;
  }
  entry->plan = Py_NewRef(plan);
  entry->held = Py_NewRef(held);
  Py_XDECREF(old_plan);
  Py_XDECREF(old_held);
  return 0;
}

static int copy_key(const char *key, Py_ssize_t size, Py_ssize_t room, uint64_t *words) {
  if (size > room * (Py_ssize_t)sizeof *words || size % (Py_ssize_t)sizeof *words) {
    PyErr_SetString(PyExc_ValueError, "a key has too many words, or a part of one");
    return -1;
  }
  memcpy(words, key, (size_t)size);
  return 0;
}

/* A method `keep(key, value, held)`; `format` names it, and `value` is of a type. */
static PyObject *keep_in(Table *table, PyObject *args, const char *format, PyTypeObject *type, PyObject **value) {
  const char *key;
  Py_ssize_t size;
  PyObject *held;
  if (!PyArg_ParseTuple(args, format, &key, &size, type, value, &PyTuple_Type, &held)) return NULL;
  uint64_t words[MOST_WORDS];
  if (copy_key(key, size, MOST_WORDS, words) < 0) return NULL;
  if (table_keep(table, words, size / (Py_ssize_t)sizeof(uint64_t), *value, held) < 0) return NULL;
  Py_RETURN_NONE;
}
