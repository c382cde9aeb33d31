/* The attributes of conv2d: each holds one value for both dims or one for each; in padding the upper sides come
 * first. */
#ifndef IK_CONV2D_ATTRS_H
#define IK_CONV2D_ATTRS_H
#define STEP_H p.attr_stride.v[0]
#define STEP_W p.attr_stride.v[p.attr_stride.count - 1]
#define SPREAD_H (ik_index) p.attr_dilation.v[0]
#define SPREAD_W (ik_index) p.attr_dilation.v[p.attr_dilation.count - 1]
#define TOP p.attr_padding.v[0]
#define LEFT p.attr_padding.v[p.attr_padding.count > 1]
#endif
