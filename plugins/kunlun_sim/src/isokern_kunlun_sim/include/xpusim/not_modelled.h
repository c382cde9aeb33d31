/* Names that exist on some card, or in some text, but whose meaning no public source states (or that have none on this
 * kind of card). Using one is a compile-time error at the author's line that says why. */
#ifndef XPUSIM_NOT_MODELLED_H
#define XPUSIM_NOT_MODELLED_H

namespace xpusim
{

/* Converts to anything, so that the line that uses it has no other error. */
struct anything {
    template <class T>
    operator T() const
    { __builtin_unreachable(); }
};

} // namespace xpusim

#define XPUSIM_NOT_MODELLED(name, why) \
    template <class... A> \
    __attribute__((error("not modelled: " #name ": " why))) xpusim::anything name(const A &...);
#endif
