/* The type of an element in memory, by dtype; for block types, a byte. The prelude has defined the types of stdint.h
 * before. */
#ifndef IK_TYPES_H
#define IK_TYPES_H
typedef float ik_f32;
typedef uint16_t ik_f16, ik_bf16;
typedef int8_t ik_i8;
typedef int16_t ik_i16;
typedef int32_t ik_i32;
typedef int64_t ik_i64;
typedef uint8_t ik_u8, ik_bool, ik_q4_0, ik_q4_1, ik_q8_0;
typedef uint16_t ik_u16;
typedef uint32_t ik_u32;
typedef uint64_t ik_u64;
#endif
