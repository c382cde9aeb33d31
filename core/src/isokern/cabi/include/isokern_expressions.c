/* Loop bodies as text: the parser of expr/tree.py and the stack code of expr/stack_code.py, for decompositions that run
 * without Python. The words are those that Python makes of the same text. */
#include "isokern_attributes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "isokern_native.h"

#define NODE_LIMIT 1024
#define DEEPEST 200
#define KEPT_BITS 8 /* an opcode is the low byte of its word */

enum { NODE_CONST, NODE_INPUT, NODE_OP };

/* A node; equal ones are the same. `code` is the opcode of an operation, the number of an input. */
typedef struct node {
    int kind, code;
    double number;
    int count, args[3];
    int uses, left; /* how often an operation is used, and how often it still will be */
    int kept; /* the number under which its value is kept, or -1 */
} node;

typedef struct parser {
    const char *at, *end;
    node *nodes;
    int count, depth;
    bool failed;
    ik_program *program;
    int stack[NODE_LIMIT], height; /* of the words: the number under which each value is kept, or -1 */
} parser;

static int fail(parser *p)
{
    p->failed = true;
    return 0;
}

static int add(parser *p, node given)
{
    for (int i = 0; i < p->count; i++) {
        const node *n = &p->nodes[i];
        if (n->kind == given.kind && n->code == given.code && n->count == given.count && n->number == given.number
            && signbit(n->number) == signbit(given.number) && memcmp(n->args, given.args, sizeof n->args) == 0)
            return i;
    }
    if (p->count == NODE_LIMIT)
        return fail(p);
    given.kept = -1;
    p->nodes[p->count] = given;
    return p->count++;
}

static int operation(parser *p, int code, int count, int a, int b, int c)
{ return add(p, (node){ .kind = NODE_OP, .code = code, .count = count, .args = { a, b, c } }); }

static void skip(parser *p)
{
    while (p->at < p->end && *p->at == ' ')
        p->at++;
}

static bool is_word(char c)
{ return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

/* Whether a sign or a word comes next; it is read then. */
static bool take(parser *p, const char *sign)
{
    const size_t length = strlen(sign);
    skip(p);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, sign, length) != 0)
        return false;
    if (is_word(*sign) && p->at + length < p->end && is_word(p->at[length]))
        return false;
    p->at += length;
    return true;
}

static int expression(parser *p);

static int number(parser *p)
{
    char digits[400];
    size_t n = 0;
    bool integral = true;
    while (p->at < p->end && n + 1 < sizeof digits
        && ((*p->at >= '0' && *p->at <= '9') || *p->at == '.' || *p->at == 'e'
            || ((*p->at == '-' || *p->at == '+') && p->at[-1] == 'e'))) {
        integral = integral && *p->at >= '0' && *p->at <= '9';
        digits[n++] = *p->at++;
    }
    digits[n] = '\0';
    char *end;
    const double value = strtod(digits, &end);
    if (n == 0 || *end != '\0')
        return fail(p);
    return add(p, (node){ .kind = NODE_CONST, .code = integral, .number = value });
}

static int call_of(parser *p, const char *name, size_t length)
{
    const int code = ik_find_function(name, length), count = code < 0 ? 0 : ik_count_operands(code);
    int args[3] = { 0 };
    for (int i = 0; i < count; i++) {
        args[i] = expression(p);
        if (!take(p, i + 1 < count ? "," : ")"))
            return fail(p);
    }
    return code < 0 ? fail(p) : operation(p, code, count, args[0], args[1], args[2]);
}

static int atom(parser *p)
{
    if (take(p, "(")) {
        const int inner = expression(p);
        return take(p, ")") ? inner : fail(p);
    }
    if (p->at < p->end && ((*p->at >= '0' && *p->at <= '9') || *p->at == '.'))
        return number(p);
    const char *name = p->at;
    while (p->at < p->end && is_word(*p->at))
        p->at++;
    const size_t length = (size_t)(p->at - name);
    if (take(p, "("))
        return call_of(p, name, length);
    if (length != 2 || name[0] != 'x' || name[1] < '0' || name[1] >= '0' + IK_PROGRAM_INPUTS)
        return fail(p);
    return add(p, (node){ .kind = NODE_INPUT, .code = name[1] - '0' });
}

static int factor(parser *p)
{
    if (!take(p, "-"))
        return atom(p);
    if (++p->depth > DEEPEST)
        return fail(p);
    const int inner = factor(p);
    p->depth--;
    node of = p->nodes[inner];
    if (of.kind != NODE_CONST)
        return operation(p, IK_CODE_NEG, 1, inner, 0, 0);
    of.number = of.code && of.number == 0 ? 0 : -of.number; /* the integer 0 has no sign */
    return add(p, of);
}

static int term(parser *p)
{
    int left = factor(p);
    for (;;) {
        const bool product = take(p, "*");
        if (!product && !take(p, "/"))
            return left;
        left = operation(p, product ? IK_CODE_MUL : IK_CODE_DIV, 2, left, factor(p), 0);
    }
}

static int sum(parser *p)
{
    int left = term(p);
    for (;;) {
        const bool plus = take(p, "+");
        if (!plus && !take(p, "-"))
            return left;
        left = operation(p, plus ? IK_CODE_ADD : IK_CODE_SUB, 2, left, term(p), 0);
    }
}

static int comparison(parser *p)
{
    static const struct {
        const char *sign;
        int code;
    } signs[] = { { "<=", IK_CODE_LE }, { ">=", IK_CODE_GE }, { "==", IK_CODE_EQ }, { "!=", IK_CODE_NE },
        { "<", IK_CODE_LT }, { ">", IK_CODE_GT } };
    const int left = sum(p);
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (take(p, signs[i].sign))
            return operation(p, signs[i].code, 2, left, sum(p), 0);
    return left;
}

static int negation(parser *p)
{
    if (!take(p, "not"))
        return comparison(p);
    if (++p->depth > DEEPEST)
        return fail(p);
    const int inner = negation(p);
    p->depth--;
    return operation(p, IK_CODE_NOT, 1, inner, 0, 0);
}

static int conjunction(parser *p)
{
    int left = negation(p);
    while (take(p, "and"))
        left = operation(p, IK_CODE_AND, 2, left, negation(p), 0);
    return left;
}

static int disjunction(parser *p)
{
    int left = conjunction(p);
    while (take(p, "or"))
        left = operation(p, IK_CODE_OR, 2, left, conjunction(p), 0);
    return left;
}

static int expression(parser *p)
{
    if (++p->depth > DEEPEST || p->failed)
        return fail(p);
    int made = disjunction(p);
    if (take(p, "if")) {
        const int test = disjunction(p);
        if (!take(p, "else"))
            return fail(p);
        made = operation(p, IK_CODE_SELECT, 3, test, made, expression(p));
    }
    p->depth--;
    return made;
}

static void count_uses(parser *p, int at)
{
    node *n = &p->nodes[at];
    if (n->kind == NODE_OP && ++n->uses == 1)
        for (int i = 0; i < n->count; i++)
            count_uses(p, n->args[i]);
}

static void put(parser *p, int64_t word)
{
    if (p->program->count == (int64_t)(sizeof p->program->v / sizeof *p->program->v))
        p->failed = true;
    else
        p->program->v[p->program->count++] = word;
}

/* A number under which no value is kept, and none on the stack; -1 where there is none. */
static int find_free(const parser *p)
{
    bool taken[IK_PROGRAM_KEPT] = { false };
    for (int i = 0; i < p->count; i++)
        if (p->nodes[i].kept >= 0)
            taken[p->nodes[i].kept] = true;
    for (int i = 0; i < p->height; i++)
        if (p->stack[i] >= 0)
            taken[p->stack[i]] = true;
    for (int i = 0; i < IK_PROGRAM_KEPT; i++)
        if (!taken[i])
            return i;
    return -1;
}

static void emit(parser *p, int at)
{
    node *n = &p->nodes[at];
    const int height = p->height;
    if (p->failed)
        return;
    if (n->kept >= 0) {
        put(p, IK_CODE_AGAIN | n->kept << KEPT_BITS);
    } else if (n->kind == NODE_CONST) {
        int64_t bits;
        memcpy(&bits, &n->number, sizeof bits);
        put(p, IK_CODE_CONST);
        put(p, bits);
    } else if (n->kind == NODE_INPUT) {
        put(p, IK_CODE_INPUT | n->code << KEPT_BITS);
    } else {
        for (int i = 0; i < n->count; i++)
            emit(p, n->args[i]);
        put(p, n->code);
    }
    p->height = height;
    p->stack[p->height++] = n->kept;
    if (n->uses < 2)
        return;
    n->left--;
    const int free_number = find_free(p);
    if (n->kept < 0 && n->left > 0 && free_number >= 0) {
        n->kept = p->stack[height] = free_number;
        put(p, IK_CODE_KEEP | free_number << KEPT_BITS);
    } else if (n->kept >= 0 && n->left == 0) {
        n->kept = -1;
    }
}

bool ik_compile_expression(ik_machine *machine, const char *text, size_t length, ik_program *program)
{
    parser *p = ik_machine_memory(machine, sizeof *p);
    node *nodes = ik_machine_memory(machine, NODE_LIMIT * sizeof *nodes);
    if (p == NULL || nodes == NULL)
        return false;
    *p = (parser){ .at = text, .end = text + length, .nodes = nodes, .program = program };
    memset(program, 0, sizeof *program);
    const int tree = expression(p);
    skip(p);
    if (p->failed || p->at != p->end)
        return false;
    count_uses(p, tree);
    for (int i = 0; i < p->count; i++)
        nodes[i].left = nodes[i].uses;
    emit(p, tree);
    return !p->failed;
}
