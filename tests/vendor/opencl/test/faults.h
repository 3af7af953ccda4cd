/* SPDX-License-Identifier: MIT */
/* Makes one OpenCL call of the process fail: the test's own functions come before libOpenCL's. */
#ifndef FAULTS_H
#define FAULTS_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

/* The n-th call from now on, of all that can fail, answers `code`. 0: none does. */
void faults_arm(uint64_t nth, cl_int code);
/* It has. */
bool faults_fired(void);

#endif
