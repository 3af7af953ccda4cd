/* SPDX-License-Identifier: MIT */
/* HAS_ADDRESS_SANITIZER is 1 in a build with AddressSanitizer; each compiler has its own macro. */
#ifndef MOOR_TESTS_SANITIZER_H
#define MOOR_TESTS_SANITIZER_H

#define HAS_ADDRESS_SANITIZER 0
#if defined(__SANITIZE_ADDRESS__)
#undef HAS_ADDRESS_SANITIZER
#define HAS_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef HAS_ADDRESS_SANITIZER
#define HAS_ADDRESS_SANITIZER 1
#endif
#endif

#endif
