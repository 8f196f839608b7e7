#pragma once

#ifdef __cplusplus
extern "C" {
#endif

int puts(const char *text);

#ifdef __cplusplus
}
#endif
