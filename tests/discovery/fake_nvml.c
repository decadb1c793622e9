/* A libnvidia-ml.so.1 for tests: each answer comes from the file that $FAKE_NVML names, with lines "gpu0.name=...".
 * Layouts and error numbers are those of NVIDIA's public nvml.h. A missing key is NVML_ERROR_NOT_SUPPORTED; "error=9" fails
 * nvmlInit; "gpuN.error=15" fails every call about that GPU; "gpuN.hang=1" and "gpuN.crash=1" do that. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { SLOTS = 16, FIRST_INSTANCE = 1000 };
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { uint64_t total, free, used; } Memory;

static int setting(const char *key, char *value, size_t size)
{
	char line[512];
	int found = 0;
	const char *path = getenv("FAKE_NVML");
	FILE *file = path ? fopen(path, "r") : NULL;
	if (file == NULL)
		return 0;
	while (!found && fgets(line, sizeof line, file)) {
		char *equals = strchr(line, '=');
		if (equals == NULL)
			continue;
		*equals = '\0';
		if (strcmp(line, key) == 0) {
			equals[1 + strcspn(equals + 1, "\n")] = '\0';
			snprintf(value, size, "%s", equals + 1);
			found = 1;
		}
	}
	fclose(file);
	return found;
}

/* A handle is 1 + the number of the GPU, or FIRST_INSTANCE + SLOTS * GPU + index for an instance of MIG. */
static int about(uintptr_t handle, const char *what, char *value, size_t size)
{
	char key[64], fault[64];
	int is_instance = handle >= FIRST_INSTANCE;
	unsigned gpu = is_instance ? (handle - FIRST_INSTANCE) / SLOTS : handle - 1;
	snprintf(key, sizeof key, "gpu%u.hang", gpu);
	while (setting(key, fault, sizeof fault))
		pause();
	snprintf(key, sizeof key, "gpu%u.crash", gpu);
	if (setting(key, fault, sizeof fault))
		raise(SIGSEGV);
	snprintf(key, sizeof key, "gpu%u.error", gpu);
	if (setting(key, fault, sizeof fault))
		return atoi(fault);
	if (is_instance)
		snprintf(key, sizeof key, "gpu%u.instance%u", gpu, (unsigned)(handle - FIRST_INSTANCE) % SLOTS);
	else
		snprintf(key, sizeof key, "gpu%u.%s", gpu, what);
	return setting(key, value, size) ? SUCCESS : NOT_SUPPORTED;
}

static int text_about(uintptr_t handle, const char *what, char *out, unsigned size)
{
	char value[256];
	int code = about(handle, what, value, sizeof value);
	if (code == SUCCESS && strlen(value) >= size)
		return INSUFFICIENT_SIZE;
	if (code == SUCCESS)
		strcpy(out, value);
	return code;
}

static int number_about(uintptr_t handle, const char *what, uint64_t *out)
{
	char value[64];
	int code = about(handle, what, value, sizeof value);
	if (code == SUCCESS)
		*out = strtoull(value, NULL, 0);
	return code;
}

int nvmlInitWithFlags(unsigned flags)
{
	char value[16];
	(void)flags;
	return setting("error", value, sizeof value) ? atoi(value) : SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "fake"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
	return setting("driver", out, size) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
	char value[16];
	*out = setting("count", value, sizeof value) ? (unsigned)atoi(value) : 0;
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, uintptr_t *out)
{
	char value[256];
	int code = about(index + 1, "name", value, sizeof value);
	*out = index + 1;
	return code == NOT_SUPPORTED ? SUCCESS : code;
}

int nvmlDeviceGetPciInfo_v3(uintptr_t handle, Pci *out)
{
	memset(out, 0, sizeof *out);
	return text_about(handle, "pci", out->bus_id, sizeof out->bus_id);
}

int nvmlDeviceGetName(uintptr_t handle, char *out, unsigned size) { return text_about(handle, "name", out, size); }
int nvmlDeviceGetUUID(uintptr_t handle, char *out, unsigned size) { return text_about(handle, "uuid", out, size); }
int nvmlDeviceGetSerial(uintptr_t handle, char *out, unsigned size) { return text_about(handle, "serial", out, size); }
int nvmlDeviceGetVbiosVersion(uintptr_t handle, char *out, unsigned size) { return text_about(handle, "vbios", out, size); }

int nvmlDeviceGetMemoryInfo(uintptr_t handle, Memory *out)
{
	memset(out, 0, sizeof *out);
	return number_about(handle, "memory", &out->total);
}

int nvmlDeviceGetMigMode(uintptr_t handle, unsigned *current, unsigned *pending)
{
	uint64_t mode = 0;
	int code = number_about(handle, "mig", &mode);
	*current = *pending = mode;
	return code;
}

int nvmlDeviceGetMaxMigDeviceCount(uintptr_t handle, unsigned *out)
{
	uint64_t most = 0;
	int code = number_about(handle, "mig_max", &most);
	*out = most;
	return code;
}

int nvmlDeviceGetMigDeviceHandleByIndex(uintptr_t handle, unsigned index, uintptr_t *out)
{
	char value[64];
	int code;
	*out = FIRST_INSTANCE + SLOTS * (handle - 1) + index;
	code = about(*out, "", value, sizeof value);
	return code == NOT_SUPPORTED ? NOT_FOUND : code;
}

int nvmlDeviceGetNvLinkState(uintptr_t handle, unsigned link, unsigned *out)
{
	char key[32];
	uint64_t links = 0, is_up = 1;
	int code = number_about(handle, "links", &links);
	if (code == SUCCESS && link >= links)
		return INVALID_ARGUMENT;
	if (code == SUCCESS) {
		snprintf(key, sizeof key, "link%u", link);
		number_about(handle, key, &is_up);
		*out = is_up;
	}
	return code;
}

int nvmlDeviceGetTotalEccErrors(uintptr_t handle, int kind, int counter, unsigned long long *out)
{
	char key[32];
	uint64_t count = 0;
	int code;
	snprintf(key, sizeof key, "ecc_%s_%s", kind == 0 ? "corrected" : "uncorrected", counter == 0 ? "volatile" : "lifetime");
	code = number_about(handle, key, &count);
	*out = count;
	return code;
}

int nvmlDeviceGetRemappedRows(uintptr_t handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
	uint64_t count = 0, is_pending = 0, has_failed = 0, of_corrected = 0;
	int code = number_about(handle, "remapped", &count);
	number_about(handle, "remapped_corrected", &of_corrected);
	number_about(handle, "remap_pending", &is_pending);
	number_about(handle, "remap_failed", &has_failed);
	*corrected = of_corrected;
	*uncorrected = count;
	*pending = is_pending;
	*failed = has_failed;
	return code;
}

int nvmlDeviceGetTemperature(uintptr_t handle, int sensor, unsigned *out)
{
	uint64_t celsius = 0;
	int code = number_about(handle, "celsius", &celsius);
	(void)sensor;
	*out = celsius;
	return code;
}

int nvmlDeviceGetTemperatureThreshold(uintptr_t handle, int kind, unsigned *out)
{
	uint64_t celsius = 0;
	int code = kind == 1 ? number_about(handle, "slowdown", &celsius) : NOT_SUPPORTED; /* 1: slowdown */
	*out = celsius;
	return code;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(uintptr_t handle, unsigned long long *out)
{
	uint64_t mask = 0;
	int code = number_about(handle, "throttle", &mask);
	*out = mask;
	return code;
}

int nvmlDeviceGetNvLinkErrorCounter(uintptr_t handle, unsigned link, int counter, unsigned long long *out)
{
	char key[32];
	uint64_t count = 0;
	int code;
	snprintf(key, sizeof key, "link%u_errors%d", link, counter);
	code = number_about(handle, key, &count);
	*out = count;
	return code;
}
