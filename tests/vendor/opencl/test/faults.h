/* SPDX-License-Identifier: MIT */
/* Makes one OpenCL call of the process fail: the test's functions come before libOpenCL's. */
#ifndef FAULTS_H
#define FAULTS_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

/* Makes the n-th call from now on fail with `code`; 0: no call fails. */
void faults_arm(uint64_t nth, cl_int code);
/* Returns true if that call has failed. */
bool faults_fired(void);

#endif
