//! Makes C programs of what csmith lacks: floating point of three widths, atomics, local memory and
//! divergence.
//!
//! `lanes.h` has the rules that make a program's sum the same whether lanes run together or one after the
//! other.

use std::fmt::Write as _;

/// Lanes of a grid and of a workgroup, as in `lanes.h`.
pub const LANES: u32 = 512;
/// Lanes of a workgroup.
pub const GROUP: u32 = 256;

/// Phases of a program, with a barrier after each.
const PHASES: u64 = 6;

// LLVM 22 loses the sign of zeros where it makes one instruction of a product, or of a sum with −0, and a
// conversion to 16 bits (`v_fma_mixlo_f16` with 0 as its addend), and where it negates a number for 0 − x. So
// programs have no zero constants, and what is converted to 16 bits is hidden from the compiler.

/// How deep expressions nest.
const DEPTH: u32 = 3;

/// Makes the program of that seed.
pub fn program(seed: u64) -> String {
    let mut generator =
        Generator { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678, parity: 0, loops: 0 };
    let mut text = format!("#define SEED {seed}ul\n#include \"lanes.h\"\n");
    for helper in 0..2 {
        let body = generator.word(DEPTH);
        let keep = if generator.below(2) == 0 { "__attribute__((noinline)) " } else { "" };
        writeln!(
            text,
            "{keep}static u32 helper{helper}(lane_t *s, u32 lane, u32 x) {{ u32 i = x & 7; return {body}; }}"
        )
        .expect("strings grow");
    }
    let mut phases = String::new();
    for phase in 0..PHASES {
        generator.parity = phase & 1;
        let body = generator.block(3);
        let shared = generator.share();
        writeln!(text, "static void phase{phase}(lane_t *s, u32 lane) {{").expect("strings grow");
        writeln!(
            text,
            "u32 own = lane % GROUP, group = lane / GROUP, i = own & 7, x = own;\n{body}{shared}}}"
        )
        .expect("strings grow");
        write!(phases, " PHASE(phase{phase})").expect("strings grow");
    }
    text + &format!("#define PHASES{phases}\n#include \"lanes_main.h\"\n")
}

struct Generator {
    state: u64,
    /// The parity of the phase.
    parity: u64,
    /// How many loops are around.
    loops: u32,
}

impl Generator {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Makes a 32-bit expression.
    fn word(&mut self, depth: u32) -> String {
        if depth == 0 {
            let (register, constant) = (self.below(4), self.next());
            return match self.below(6) {
                0 => format!("{:#x}u", constant as u32),
                1 => format!("{}u", constant % 64),
                2 => self.pick(&["lane", "i", "x"]).to_owned(),
                _ => format!("s->r[{register}]"),
            };
        }
        let depth = depth - 1;
        match self.below(26) {
            0..=4 => {
                let operator = self.pick(&["+", "-", "*", "&", "|", "^"]);
                format!("({} {operator} {})", self.word(depth), self.word(depth))
            }
            5 => format!("({} {} ({} & 31))", self.word(depth), self.pick(&["<<", ">>"]), self.word(depth)),
            6 => format!("(u32) ((i32) {} >> ({} & 31))", self.word(depth), self.word(depth)),
            7 => format!(
                "(opaque({}) {} ({} | 1))",
                self.word(depth),
                self.pick(&["/", "%"]),
                self.word(depth)
            ),
            8 => format!("(u32) ((i32) {} {} 13)", self.word(depth), self.pick(&["/", "%"])),
            9 => format!("({} ? {} : {})", self.condition(depth), self.word(depth), self.word(depth)),
            10 => format!("(u32) ({} >> ({} & 63))", self.long(depth), self.word(depth)),
            11 => format!("float_bits({})", self.float(depth)),
            12 => format!("half_bits({})", self.half(depth)),
            13 => format!("to_i32({})", self.double(depth)),
            14 => format!("to_u32({})", self.float(depth)),
            15 => format!("(u32) __builtin_popcount({})", self.word(depth)),
            16 => {
                format!("(u32) {}({} | 1)", self.pick(&["__builtin_clz", "__builtin_ctz"]), self.word(depth))
            }
            17 => format!("__builtin_bitreverse32({})", self.word(depth)),
            18 => format!("__builtin_rotateleft32({}, {} & 31)", self.word(depth), self.word(depth)),
            19 => {
                let function = self.pick(&["__builtin_elementwise_add_sat", "__builtin_elementwise_sub_sat"]);
                let cast = self.pick(&["u32", "i32", "u16", "i16"]);
                let (a, b) = (self.word(depth), self.word(depth));
                format!("(u32) {function}(({cast}) {a}, ({cast}) {b})")
            }
            20 => {
                let (cast, operator) =
                    (self.pick(&["u8", "u16", "i16", "signed char"]), self.pick(&["+", "*", "-"]));
                format!("(u32) ({cast}) ({} {operator} {})", self.word(depth), self.word(depth))
            }
            21 => format!("(u32) __builtin_bswap32({})", self.word(depth)),
            22 => {
                let function = self.pick(&["__builtin_elementwise_min", "__builtin_elementwise_max"]);
                let cast = self.pick(&["u32", "i32", "i16", "u16"]);
                let (a, b) = (self.word(depth), self.word(depth));
                format!("(u32) {function}(({cast}) {a}, ({cast}) {b})")
            }
            23 => format!("(u32) __builtin_isunordered({}, {})", self.float(depth), self.float(depth)),
            24 => format!("(({} & 0xffffff) * ({} & 0xffffff))", self.word(depth), self.word(depth)),
            _ => format!("(u32) ((u64) {} * {} >> 32)", self.word(depth), self.word(depth)),
        }
    }

    fn long(&mut self, depth: u32) -> String {
        if depth == 0 {
            let (register, constant) = (self.below(3), self.next());
            return if self.below(5) == 0 { format!("{constant:#x}ul") } else { format!("s->q[{register}]") };
        }
        let depth = depth - 1;
        match self.below(14) {
            0..=3 => {
                let operator = self.pick(&["+", "-", "*", "&", "|", "^"]);
                format!("({} {operator} {})", self.long(depth), self.long(depth))
            }
            4 => format!("({} {} ({} & 63))", self.long(depth), self.pick(&["<<", ">>"]), self.word(depth)),
            5 => format!("(u64) ((i64) {} >> ({} & 63))", self.long(depth), self.word(depth)),
            6 => format!("({} {} ({} | 1))", self.long(depth), self.pick(&["/", "%"]), self.long(depth)),
            7 => format!("({} ? {} : {})", self.condition(depth), self.long(depth), self.long(depth)),
            8 => format!("(u64) {}", self.word(depth)),
            9 => format!("(u64) (i64) (i32) {}", self.word(depth)),
            10 => format!("double_bits({})", self.double(depth)),
            11 => format!("to_i64({})", self.double(depth)),
            12 => format!("to_u64({})", self.float(depth)),
            _ => {
                let cast = self.pick(&["unsigned __int128", "__int128"]);
                format!("(u64) (({cast}) (i64) {} * (i64) {} >> 64)", self.long(depth), self.long(depth))
            }
        }
    }

    fn float(&mut self, depth: u32) -> String {
        if depth == 0 {
            let register = self.below(4);
            return match self.below(6) {
                0 => self
                    .pick(&["1.5f", "(-3e38f)", "1e-40f", "7e22f", "1e30f", "__builtin_inff()"])
                    .to_owned(),
                1 => format!("of_bits(s->r[{register}])"),
                _ => format!("s->f[{register}]"),
            };
        }
        let depth = depth - 1;
        match self.below(18) {
            0..=6 => {
                let operator = self.pick(&["+", "-", "*", "/"]);
                format!("({} {operator} {})", self.float(depth), self.float(depth))
            }
            7 => {
                format!("__builtin_fmaf({}, {}, {})", self.float(depth), self.float(depth), self.float(depth))
            }
            8 => format!("__builtin_sqrtf({})", self.float(depth)),
            9 => format!("(-{})", self.float(depth)),
            10 => format!("__builtin_fabsf({})", self.float(depth)),
            11 => {
                let function = self.pick(&["floorf", "ceilf", "truncf", "rintf", "roundf"]);
                format!("__builtin_{function}({})", self.float(depth))
            }
            12 => format!("({} ? {} : {})", self.condition(depth), self.float(depth), self.float(depth)),
            13 => format!("(float) {}{}", self.pick(&["", "(i32) "]), self.word(depth)),
            14 => format!("(float) {}{}", self.pick(&["", "(i64) "]), self.long(depth)),
            15 => format!("(float) {}", self.double(depth)),
            16 => format!("(float) {}", self.half(depth)),
            _ => format!("__builtin_ldexpf({}, (i32) ({} & 511) - 256)", self.float(depth), self.word(depth)),
        }
    }

    fn double(&mut self, depth: u32) -> String {
        if depth == 0 {
            let register = self.below(3);
            return match self.below(6) {
                0 => {
                    self.pick(&["1.5", "(-1e308)", "5e-320", "1e-300", "1e100", "__builtin_inf()"]).to_owned()
                }
                1 => format!("of_bits64(s->q[{register}])"),
                _ => format!("s->d[{register}]"),
            };
        }
        let depth = depth - 1;
        match self.below(16) {
            0..=6 => {
                let operator = self.pick(&["+", "-", "*", "/"]);
                format!("({} {operator} {})", self.double(depth), self.double(depth))
            }
            7 => format!(
                "__builtin_fma({}, {}, {})",
                self.double(depth),
                self.double(depth),
                self.double(depth)
            ),
            8 => format!("__builtin_sqrt({})", self.double(depth)),
            9 => format!("{}({})", self.pick(&["-", "__builtin_fabs"]), self.double(depth)),
            10 => {
                let function = self.pick(&["floor", "ceil", "trunc", "rint", "round"]);
                format!("__builtin_{function}({})", self.double(depth))
            }
            11 => format!("({} ? {} : {})", self.condition(depth), self.double(depth), self.double(depth)),
            12 => format!("(double) {}{}", self.pick(&["", "(i32) "]), self.word(depth)),
            13 => format!("(double) {}{}", self.pick(&["", "(i64) "]), self.long(depth)),
            14 => format!("(double) {}", self.float(depth)),
            _ => {
                format!("__builtin_ldexp({}, (i32) ({} & 4095) - 2048)", self.double(depth), self.word(depth))
            }
        }
    }

    /// Makes a 16-bit floating-point expression, in which each operation is rounded.
    fn half(&mut self, depth: u32) -> String {
        if depth == 0 {
            let register = self.below(3);
            return match self.below(5) {
                0 => format!("(half) {}", self.pick(&["1.5f", "65504.0f", "6e-8f"])),
                1 => format!("of_bits16((u16) s->r[{register}])"),
                _ => format!("s->h[{register}]"),
            };
        }
        let depth = depth - 1;
        match self.below(10) {
            0..=4 => {
                let operator = self.pick(&["+", "-", "*", "/"]);
                format!("((half) ({} {operator} {}))", self.half(depth), self.half(depth))
            }
            5 => format!("((half) -{})", self.half(depth)),
            6 => format!("({} ? {} : {})", self.condition(depth), self.half(depth), self.half(depth)),
            7 => format!("((half) opaque_float((u16) {}))", self.word(depth)),
            8 => format!("((half) opaque_float((i16) {}))", self.word(depth)),
            _ => format!("((half) opaque_float({}))", self.float(depth)),
        }
    }

    fn condition(&mut self, depth: u32) -> String {
        let operator = self.pick(&["<", ">", "<=", ">=", "==", "!="]);
        match self.below(7) {
            0 => format!("({} {operator} {})", self.float(depth), self.float(depth)),
            1 => format!("({} {operator} {})", self.double(depth), self.double(depth)),
            2 => format!("({} {operator} {})", self.half(depth), self.half(depth)),
            3 => format!("({} {operator} {})", self.long(depth), self.long(depth)),
            4 => format!("((i64) {} {operator} (i64) {})", self.long(depth), self.long(depth)),
            5 => format!("((i32) {} {operator} (i32) {})", self.word(depth), self.word(depth)),
            _ => format!("({} & {})", self.word(depth), 1 << self.below(5)),
        }
    }

    /// Makes statements that only change the lane's own state.
    fn block(&mut self, depth: u32) -> String {
        let mut text = String::new();
        for _ in 0..2 + self.below(3) {
            text += &self.statement(depth);
        }
        text
    }

    fn assignment(&mut self) -> String {
        match self.below(7) {
            0 | 1 => format!("s->r[{}] = {};\n", self.below(4), self.word(DEPTH)),
            2 => format!("s->q[{}] = {};\n", self.below(3), self.long(DEPTH)),
            3 | 4 => format!("s->f[{}] = {};\n", self.below(4), self.float(DEPTH)),
            5 => format!("s->d[{}] = {};\n", self.below(3), self.double(DEPTH)),
            _ => format!("s->h[{}] = {};\n", self.below(3), self.half(DEPTH)),
        }
    }

    fn statement(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.assignment();
        }
        match self.below(9) {
            0 => format!(
                "if ({}) {{\n{}}} else {{\n{}}}\n",
                self.condition(2),
                self.block(depth - 1),
                self.block(depth - 1)
            ),
            1 => format!("if ({}) {{\n{}}}\n", self.condition(2), self.block(depth - 1)),
            2 if self.loops < 2 => {
                self.loops += 1;
                let (bound, condition, body) = (self.word(1), self.condition(1), self.block(depth - 1));
                let way = self.pick(&["break", "continue"]);
                self.loops -= 1;
                format!(
                    "{{ u32 turns = {bound} & 7; for (u32 i = turns; i; i--) {{\n{body}if ({condition}) {way};\n{}}} }}\n",
                    self.assignment()
                )
            }
            3 => {
                let (value, cases) = (self.word(1), 3 + self.below(4));
                let mut text = format!("switch ({value} % {cases}) {{\n");
                for case in 0..cases {
                    let end = self.pick(&["break;", "break;", ""]);
                    write!(text, "case {case}:\n{}{end}\n", self.assignment()).expect("strings grow");
                }
                text + "}\n"
            }
            4 => format!("s->r[{}] = helper{}(s, lane, {});\n", self.below(4), self.below(2), self.word(1)),
            5 => {
                let (one, other) = (self.word(1), self.word(1));
                format!(
                    "{{ u32 many[8]; for (u32 k = 0; k < 8; k++) many[k] = {one} + k * {other};\n\
                    s->r[{}] = many[{} & 7] ^ many[s->r[0] & 7]; }}\n",
                    self.below(4),
                    self.word(1)
                )
            }
            _ => self.assignment(),
        }
    }

    /// Makes statements that change and read what lanes share, some of them in branches.
    fn share(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..8 {
            let statement = self.share_once();
            if self.below(3) == 0 {
                writeln!(text, "if ({}) {{ {statement} }}", self.condition(1)).expect("strings grow");
            } else {
                writeln!(text, "{statement}").expect("strings grow");
            }
        }
        text
    }

    fn share_once(&mut self) -> String {
        let (now, before) = (self.parity, 1 - self.parity);
        let (word, long, place) = (self.word(1), self.long(1), self.word(1));
        let (register, wide) = (self.below(4), self.below(3));
        // The operations whose order does not matter, one for each row of cells. Rows 5 and 6 are signed.
        let row = self.below(7);
        let operation = ["add", "and", "or", "xor", "max", "min", "max"][row as usize];
        let (cast, cast64) =
            if row >= 5 { ("LOCAL i32 *", "GLOBAL i64 *") } else { ("LOCAL u32 *", "GLOBAL u64 *") };
        let local64 = if row >= 5 { "LOCAL i64 *" } else { "LOCAL u64 *" };
        let returning = self.pick(&[
            "fetch_add",
            "fetch_sub",
            "fetch_and",
            "fetch_or",
            "fetch_xor",
            "fetch_max",
            "fetch_min",
            "exchange_n",
        ]);
        match self.below(17) {
            0 => format!("slots32[{now}][own] = {word};"),
            1 => format!("slots64[{now}][own] = {long};"),
            2 => format!("slots16[{now}][own] = (u16) {word}; slots8[{now}][own] = (u8) {word};"),
            3 => format!("s->r[{register}] ^= slots32[{before}][{place} % GROUP];"),
            4 => format!("s->q[{wide}] += slots64[{before}][{place} % GROUP];"),
            5 => format!(
                "s->r[{register}] += slots16[{before}][{place} % GROUP] + (u32) (signed char) slots8[{before}][{word} % GROUP];"
            ),
            6 => format!("global_slots[{now}][lane] = {word};"),
            7 => format!("s->r[{register}] ^= global_slots[{before}][group * GROUP + {place} % GROUP];"),
            8 => format!(
                "ATOMIC(fetch_{operation}, ({cast}) &cells32[{row}][{now}][{place} % CELLS], {word});"
            ),
            9 => format!(
                "ATOMIC(fetch_{operation}, ({local64}) &cells64[{row}][{now}][{place} % CELLS], {long});"
            ),
            10 => format!(
                "ATOMIC(fetch_{operation}, ({cast64}) &global_cells[{row}][{now}][group][{place} % CELLS], {long});"
            ),
            11 => format!("s->r[{register}] += cells32[{row}][{before}][{place} % CELLS];"),
            12 => format!(
                "s->q[{wide}] ^= cells64[{row}][{before}][{place} % CELLS] + global_cells[{row}][{before}][group][{place} % CELLS];"
            ),
            13 => format!(
                "s->r[{register}] ^= ATOMIC({returning}, &own32[own], {word}) + ATOMIC({returning}, &global_own32[lane], {word});"
            ),
            14 => format!(
                "s->q[{wide}] ^= ATOMIC({returning}, &own64[own], {long}) + ATOMIC({returning}, &global_own64[lane], {long});"
            ),
            15 => format!(
                "s->r[{register}] += swap_if(&own32[own], {place} & 255, {word}); s->q[{wide}] += swap_if_global(&global_own64[lane], {long}, {long} + 1);"
            ),
            // A pointer that the compiler cannot assign to one kind of memory.
            _ => format!(
                "{{ u32 mine = {word}; u32 *any = {} ? &mine : {} ? (u32 *) &own32[own] : (u32 *) &global_own32[lane]; \
                *any += {place}; s->r[{register}] ^= *any + mine; }}",
                self.condition(0),
                self.condition(0)
            ),
        }
    }
}
