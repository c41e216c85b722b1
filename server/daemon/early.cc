/* In C++ because handlers of exceptions are. Runs before any constructor, of libraries too (.preinit_array): no allocation. */
#include "daemon/early.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <new>
#include <typeinfo>
#include <unistd.h>

extern "C" {
#include "base/config/config.h"
}

static std::atomic<bool> over;
static std::terminate_handler before;

void ks_early_end(void)
{
    over = true;
}

static void change_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(how, &set, nullptr);
}

void ks_early_release_signals(void)
{
    change_signals(SIG_UNBLOCK);
}

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        /* No reader: the exit code says it. */
    }
}

/* An exception that nothing caught, mostly one that was thrown through C. */
static void on_terminate()
{
    if (!over) {
        const std::type_info *type = abi::__cxa_current_exception_type();
        if (type && *type == typeid(std::bad_alloc))
            say("kernserve: cannot start: a library ran out of memory\n");
        else
            say("kernserve: cannot start: a library failed\n");
        _exit(KS_EXIT_SYSTEM);
    }
    if (before) before();
    std::abort();
}

/* A library called exit; it has said why. */
static void on_exit_early()
{
    if (!over) _exit(KS_EXIT_SYSTEM);
}

static void begin()
{
    change_signals(SIG_BLOCK);
    before = std::set_terminate(on_terminate);
    std::atexit(on_exit_early);
}

/* A sanitizer's own beginning must come first. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
__attribute__((constructor)) static void begin_late()
{
    begin();
}
#else
__attribute__((section(".preinit_array"), used)) static void (*const first)() = begin;
#endif
