/* SPDX-License-Identifier: MIT */
/* Contexts, and with them the life of devices: uses all other layers. */
#ifndef MOORAGE_CUDA_CONTEXT_H
#define MOORAGE_CUDA_CONTEXT_H

#include "device.h"

/* The steps `open` and `close` of struct moor_kit_provider. */
int32_t cuda_context_open(struct moor_abi_context *context, struct moor_abi_error *error);
void cuda_context_close(struct moor_abi_context *context);
/* Ends all devices at shutdown, when no context is open. Returns false if work of destroyed streams does not
 * end: then no memory is freed. */
bool cuda_devices_finish(struct moor_abi_instance *instance);

#endif
