// A host application in C++: host_application.c with objects. Nothing is freed by hand, and errors are exceptions.
//
//     c++ -std=c++14 host_application.cpp $(isokern config --cflags --libs --backend cpu) -o host && ./host
#include <cmath>
#include <cstdio>
#include <vector>

#include "isokern.hpp"

static int failures;

static void check(bool right, const char *what)
{
    std::printf("%s: %s\n", right ? "right" : "WRONG", what);
    failures += !right;
}

static isokern::Memory upload(isokern::Stream &stream, const std::vector<float> &from)
{
    isokern::Memory memory(from.size() * sizeof(float));
    stream.write(memory, from.data(), memory.bytes());
    return memory;
}

static bool holds(isokern::Stream &stream, const isokern::Memory &memory, const std::vector<float> &expected)
{
    std::vector<float> got(expected.size());
    stream.read(got.data(), memory, got.size() * sizeof(float));
    for (std::size_t i = 0; i < got.size(); i++)
        if (!(std::fabs(got[i] - expected[i]) <= 1e-6f * (1 + expected[i])))
            return false;
    return true;
}

int main()
{
    using isokern::Operator;
    isokern::Stream stream;
    auto x = upload(stream, { 0, 1, 2, 5, 5, 5 }), row = upload(stream, { 10, 20, 30 });
    isokern::Memory y(6 * sizeof(float));
    const auto matrix = isokern::tensor(IK_F32, { 2, 3 });

    Operator softmax(IK_OP_SOFTMAX, Operator::infer(IK_OP_SOFTMAX, { isokern::absent(), matrix }), IK_SCHEMA_SOFTMAX,
        ik_softmax_attrs{ -1 });
    softmax.call({ y.data(), x.data() }, stream);
    check(
        holds(stream, y, { 0.09003057f, 0.24472847f, 0.66524096f, 1.0f / 3, 1.0f / 3, 1.0f / 3 }), "softmax of [2, 3]");

    Operator add(IK_OP_ADD, { matrix, matrix, isokern::tensor(IK_F32, { 3 }) });
    add.call({ y.data(), x.data(), row.data() }, stream);
    check(holds(stream, y, { 10, 21, 32, 15, 25, 35 }), "add of [2, 3] and a row");

    isokern::Recording recording(stream);
    check(softmax.call({ y.data(), x.data() }, stream), "a captured call does not run");
    add.call({ y.data(), y.data(), row.data() }, stream);
    recording.end();
    check(recording.size() == 2, "a list of two calls");
    stream.write(x, std::vector<float>(6, 7.0f).data(), x.bytes());
    recording.replay();
    stream.synchronize();
    const float third = 1.0f / 3;
    check(holds(stream, y, { 10 + third, 20 + third, 30 + third, 10 + third, 20 + third, 30 + third }),
        "a replay of two calls");

    try {
        Operator(IK_OP_MATMUL, { matrix, matrix, matrix });
        check(false, "matmul of [2, 3] and [2, 3] is refused");
    } catch (const isokern::Error &error) {
        check(error.status() == IK_BAD_TENSOR_SHAPE, "matmul of [2, 3] and [2, 3] is refused");
        std::printf("    %s\n", error.what());
    }
    try {
        add.call({ y.data(), x.data() }, stream);
        check(false, "two pointers for three tensors are refused");
    } catch (const isokern::Error &error) {
        check(error.status() == IK_INVALID_ARGUMENT, "two pointers for three tensors are refused");
        std::printf("    %s\n", error.what());
    }
    return failures != 0;
}
