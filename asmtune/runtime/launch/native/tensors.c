/* Tensors as PyTorch's C interface has them: extents and strides without a Python object for each.
 *
 * A handle of that interface is the address of a `TensorImpl *`, which is `Tensor._cdata`.
 */

typedef int32_t (*ReadNumber)(void *handle, int32_t *number);
typedef int32_t (*ReadSize)(void *handle, int64_t *size);
typedef int32_t (*ReadSizes)(void *handle, int64_t **sizes);
typedef int32_t (*ReadPointer)(void *handle, void **pointer);

static struct {
  ReadNumber layout, dtype, device_type, device;
  ReadSize dim;
  ReadSizes sizes, strides;
  ReadPointer data;
  int32_t strided; /* the layout of tensors that have strides */
} aten;

typedef struct {
  int32_t dtype, device_type, device;
  int64_t dim, *sizes, *strides;
  void *data;
} TensorFacts;

static int aten_open(const char *library) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (!handle) {
    PyErr_Format(PyExc_OSError, "%s is not loaded", library);
    return -1;
  }
  int32_t (*strided)(void) = (int32_t (*)(void))dlsym(handle, "aoti_torch_layout_strided");
  aten.layout = (ReadNumber)dlsym(handle, "aoti_torch_get_layout");
  aten.dtype = (ReadNumber)dlsym(handle, "aoti_torch_get_dtype");
  aten.device_type = (ReadNumber)dlsym(handle, "aoti_torch_get_device_type");
  aten.device = (ReadNumber)dlsym(handle, "aoti_torch_get_device_index");
  aten.dim = (ReadSize)dlsym(handle, "aoti_torch_get_dim");
  aten.sizes = (ReadSizes)dlsym(handle, "aoti_torch_get_sizes");
  aten.strides = (ReadSizes)dlsym(handle, "aoti_torch_get_strides");
  aten.data = (ReadPointer)dlsym(handle, "aoti_torch_get_data_ptr");
  if (!strided || !aten.layout || !aten.dtype || !aten.device_type || !aten.device || !aten.dim || !aten.sizes ||
      !aten.strides || !aten.data) {
    memset(&aten, 0, sizeof aten);
    PyErr_Format(PyExc_OSError, "%s lacks a function of PyTorch's C interface", library);
    return -1;
  }
  aten.strided = strided();
  return 0;
}

/* The `TensorImpl *` of a tensor, by the descriptor of `_cdata`; NULL with an exception. */
static void *tensor_impl(PyObject *cdata, PyObject *tensor) {
  PyObject *number = Py_TYPE(cdata)->tp_descr_get(cdata, tensor, (PyObject *)Py_TYPE(tensor));
  if (!number) return NULL;
  void *impl = PyLong_AsVoidPtr(number);
  Py_DECREF(number);
  return impl;
}

static Outcome read_tensor(PyObject *cdata, PyObject *tensor, TensorFacts *facts) {
  void *impl = tensor_impl(cdata, tensor);
  if (!impl) return ERROR;
  void *handle = &impl;
  int32_t layout;
  if (aten.layout(handle, &layout) || layout != aten.strided) return UNUSUAL;
  bool failed = aten.dtype(handle, &facts->dtype) || aten.device_type(handle, &facts->device_type) ||
                aten.device(handle, &facts->device) || aten.dim(handle, &facts->dim) ||
                aten.sizes(handle, &facts->sizes) || aten.strides(handle, &facts->strides) ||
                aten.data(handle, &facts->data);
  return failed ? UNUSUAL : USUAL;
}
