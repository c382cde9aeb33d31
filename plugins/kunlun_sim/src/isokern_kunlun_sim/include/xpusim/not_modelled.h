/* What exists on some card, or in some text, but has no meaning that public sources state (or none on this kind of card): using it is an
 * error of the compiler, at the author's line, that says why. */
#ifndef XPUSIM_NOT_MODELLED_H
#define XPUSIM_NOT_MODELLED_H

namespace xpusim {

/* Lets the line that uses it be right in its types, so that the error is the only one. */
struct anything {
    template <class T>
    operator T() const
    {
        __builtin_unreachable();
    }
};

} // namespace xpusim

#define XPUSIM_NOT_MODELLED(name, why) \
    template <class... A> \
    __attribute__((error("not modelled: " #name ": " why))) xpusim::anything name(const A &...);
#endif
