/* Fibers: functions with their own stacks that switch to each other without the operating system.
 *
 * An emulated core or thread is a fiber; all fibers of one cluster or block run on one host thread, one at a time. Each
 * switch is announced to AddressSanitizer (sanitizer/common_interface_defs.h), so that it knows whose stack it looks
 * at. */
#ifndef IK_EMULATION_FIBER_H
#define IK_EMULATION_FIBER_H
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace ik_emulation
{

/* Memory for a fiber's stack, with a guard page below it. */
class Stack
{
  public:
    explicit Stack(std::size_t bytes)
    {
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        size_ = (bytes + page - 1) / page * page;
        guard_ = page;
        void *memory =
            mmap(nullptr, size_ + guard_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, guard_, PROT_NONE) != 0)
            throw std::bad_alloc();
        memory_ = static_cast<char *>(memory);
    }
    Stack(Stack &&other) noexcept : memory_(other.memory_), size_(other.size_), guard_(other.guard_)
    { other.memory_ = nullptr; }
    Stack(const Stack &) = delete;
    Stack &operator=(const Stack &) = delete;
    Stack &operator=(Stack &&) = delete;
    ~Stack()
    {
        if (memory_ == nullptr)
            return;
        forget();
        munmap(memory_, size_ + guard_);
    }
    /* Unpoison the stack: the red zones of the variables that were on it are void. */
    void forget()
    {
#ifdef __SANITIZE_ADDRESS__
        __asan_unpoison_memory_region(low(), size_);
#endif
    }
    char *low() const { return memory_ + guard_; }
    char *high() const { return low() + size_; }
    bool in_guard(const void *address) const { return address >= memory_ && address < low(); }

  private:
    char *memory_ = nullptr;
    std::size_t size_ = 0, guard_ = 0;
};

#if defined(__x86_64__)
/* Push the registers that the ABI preserves, store the stack pointer at *from, and continue at `to`. */
extern "C" void ik_fiber_switch(void **from, void *to);
__asm__(".text\n.weak ik_fiber_switch\n.hidden ik_fiber_switch\n.type ik_fiber_switch,@function\n"
        "ik_fiber_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size ik_fiber_switch,.-ik_fiber_switch\n");
enum { IK_FIBER_SAVED = 6 };
#elif defined(__aarch64__)
extern "C" void ik_fiber_switch(void **from, void *to);
__asm__(".text\n.weak ik_fiber_switch\n.hidden ik_fiber_switch\n.type ik_fiber_switch,%function\n"
        "ik_fiber_switch:\n"
        "sub sp,sp,#160\n"
        "stp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\nstp x27,x28,[sp,#64]\n"
        "stp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\n"
        "stp d14,d15,[sp,#144]\n"
        "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
        "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\nldp x27,x28,[sp,#64]\n"
        "ldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\n"
        "ldp d14,d15,[sp,#144]\n"
        "add sp,sp,#160\nret\n"
        ".size ik_fiber_switch,.-ik_fiber_switch\n");
#endif

/* A fiber on a given stack. `resume` runs it until it yields or ends. It may be started again after that, or be
 * abandoned. */
class Fiber
{
  public:
    using Function = void (*)(void *);

    explicit Fiber(std::size_t stack_bytes) : stack_(stack_bytes) {}

    /* Prepare to run function(argument) from the beginning; what the fiber was doing before is dropped. */
    void start(Function function, void *argument)
    {
        if (!done_)
            stack_.forget();
        function_ = function;
        argument_ = argument;
        done_ = false;
#if defined(__x86_64__)
        /* At `entry` the stack is as after a call: 8 short of a multiple of 16. */
        void **top = reinterpret_cast<void **>(stack_.high()) - 1;
        *top = nullptr; /* no caller: here a walk of the stack ends */
        *--top = reinterpret_cast<void *>(&Fiber::entry);
        for (int i = 0; i < IK_FIBER_SAVED; i++)
            *--top = nullptr;
        own_ = top;
#elif defined(__aarch64__)
        void **top = reinterpret_cast<void **>(stack_.high()) - 20;
        for (int i = 0; i < 20; i++)
            top[i] = nullptr;
        top[11] = reinterpret_cast<void *>(&Fiber::entry); /* x30 */
        own_ = top;
#else
        getcontext(&own_context_);
        own_context_.uc_stack.ss_sp = stack_.low();
        own_context_.uc_stack.ss_size = static_cast<std::size_t>(stack_.high() - stack_.low());
        own_context_.uc_link = nullptr;
        makecontext(&own_context_, &Fiber::entry, 0);
#endif
    }

    void resume()
    {
        running() = this;
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_start_switch_fiber(
            &caller_frames_, stack_.low(), static_cast<std::size_t>(stack_.high() - stack_.low()));
#endif
#if defined(__x86_64__) || defined(__aarch64__)
        ik_fiber_switch(&caller_, own_);
#else
        swapcontext(&caller_context_, &own_context_);
#endif
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_finish_switch_fiber(caller_frames_, nullptr, nullptr);
#endif
    }

    /* Switch back to where the running fiber was resumed. */
    static void yield()
    {
        Fiber *self = running();
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_start_switch_fiber(
            self->done_ ? nullptr : &self->own_frames_, self->caller_low_, self->caller_size_);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
        ik_fiber_switch(&self->own_, self->caller_);
#else
        swapcontext(&self->own_context_, &self->caller_context_);
#endif
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_finish_switch_fiber(self->own_frames_, &self->caller_low_, &self->caller_size_);
#endif
    }

    bool done() const { return done_; }
    const Stack &stack() const { return stack_; }

  private:
    static Fiber *&running()
    {
        static thread_local Fiber *fiber = nullptr;
        return fiber;
    }

    static void entry()
    {
        Fiber *self = running();
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_finish_switch_fiber(nullptr, &self->caller_low_, &self->caller_size_);
#endif
        self->function_(self->argument_);
        self->done_ = true;
        yield();
        __builtin_unreachable();
    }

    Stack stack_;
    Function function_ = nullptr;
    void *argument_ = nullptr;
    bool done_ = true;
#if defined(__x86_64__) || defined(__aarch64__)
    void *own_ = nullptr, *caller_ = nullptr;
#else
    ucontext_t own_context_, caller_context_;
#endif
#ifdef __SANITIZE_ADDRESS__
    /* Where AddressSanitizer keeps variables that are used after a return. */
    void *own_frames_ = nullptr, *caller_frames_ = nullptr;
    const void *caller_low_ = nullptr;
    std::size_t caller_size_ = 0;
#endif
};

} // namespace ik_emulation
#endif
