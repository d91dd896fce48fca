/* A CUDA driver that notes each launch in place of making it. */

#include <string.h>

enum { MOST = 66 };

static struct {
  unsigned long long function, stream;
  unsigned sizes[7]; /* grid, block, shared memory */
  unsigned char parameters[MOST][128];
  int count, launches;
  unsigned attributes[4][4];
  int attribute_count, encodings;
} noted;

static int expected_count, next_code, has_context = 1;
static unsigned char widths[MOST];

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
  unsigned sizes[7] = {x, y, z, bx, by, bz, shared};
  (void)extra;
  memcpy(noted.sizes, sizes, sizeof sizes);
  noted.function = (unsigned long long)function;
  noted.stream = (unsigned long long)stream;
  memset(noted.parameters, 0, sizeof noted.parameters);
  for (int i = 0; i < expected_count; i++) memcpy(noted.parameters[i], parameters[i], widths[i]);
  noted.count = expected_count;
  noted.launches++;
  noted.attribute_count = 0;
  return next_code;
}

typedef struct {
  unsigned id, unused, value[16];
} Attribute;

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  const Attribute *attributes;
  unsigned count;
} Configuration;

int cuLaunchKernelEx(const Configuration *with, void *function, void **parameters, void **extra) {
  const unsigned *grid = with->grid, *block = with->block;
  int code = cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], with->shared,
                            with->stream, parameters, extra);
  noted.attribute_count = (int)with->count;
  for (unsigned i = 0; i < with->count; i++) {
    noted.attributes[i][0] = with->attributes[i].id;
    memcpy(&noted.attributes[i][1], with->attributes[i].value, 3 * sizeof(unsigned));
  }
  return code;
}

/* What `Encoded` of fakes.py reads. */
typedef struct {
  unsigned long long address;
  unsigned shape[5], strides[4], box[5];
  int dtype, rank, swizzle, promotion, fill;
} Encoded;

int cuTensorMapEncodeTiled(void *map, int dtype, unsigned rank, void *address, const unsigned long long *shape,
                           const unsigned long long *strides, const unsigned *box, const unsigned *steps,
                           int interleave, int swizzle, int promotion, int fill) {
  Encoded made = {.address = (unsigned long long)address, .dtype = dtype, .rank = (int)rank,
                  .swizzle = swizzle, .promotion = promotion, .fill = fill};
  if ((unsigned long long)map % 64 || interleave || (unsigned long long)address % 16) return 1;
  for (unsigned i = 0; i < rank; i++) {
    if (!shape[i] || steps[i] != 1) return 1;
    made.shape[i] = (unsigned)shape[i];
    made.box[i] = box[i];
    if (i + 1 < rank) made.strides[i] = (unsigned)strides[i];
  }
  memset(map, 0, 128);
  memcpy(map, &made, sizeof made);
  noted.encodings++;
  return 0;
}

int cuCtxGetCurrent(void **context) {
  *context = has_context ? &noted : 0;
  return 0;
}

static int capturing;

int cuStreamIsCapturing(void *stream, int *status) {
  (void)stream;
  *status = capturing;
  return 0;
}

void fake_capture(int state) { capturing = state; }

int cuGetErrorString(int code, const char **text) {
  *text = code == 700 ? "an illegal memory access was encountered" : 0;
  return 0;
}

void *fake_noted(void) { return &noted; }

void fake_expect(int count, const unsigned char *each, int code, int context) {
  expected_count = count;
  memcpy(widths, each, (unsigned)count);
  next_code = code;
  has_context = context;
}
