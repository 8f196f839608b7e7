//! Every field of a kernel descriptor (LLVM's guide for AMDGPU, "Kernel Descriptor"): what the wave that starts finds of it,
//! or why the code object is refused.

mod probe;

use hostcall_softhsa::exec::Fault;
use hostcall_softhsa::load::CodeObject;
use probe::{Launched, Probe};

/// What kernels of the tests have if a test says nothing else: the least that the assembler takes.
const PLAIN: &str = ".amdhsa_next_free_vgpr 16\n.amdhsa_next_free_sgpr 70\n.amdhsa_accum_offset 16\n";

/// A kernel with these directives besides the usual ones.
fn probe(directives: &str) -> Probe {
    Probe::new(&format!("{PLAIN}{directives}"))
}

/// One workgroup of one wave of a kernel with these directives.
fn one(directives: &str) -> Launched {
    let mut launched = probe(directives).run([64, 1, 1], [64, 1, 1]);
    assert_eq!(launched.len(), 1);
    launched.remove(0)
}

/// ENABLE_VGPR_WORKITEM_ID: the bits of dimensions that the kernel does not ask for are 0.
#[test]
fn lanes_have_ids_in_the_dimensions_that_are_asked_for() {
    let size = [4, 4, 2];
    for dimensions in 1..=3usize {
        let directive = format!(".amdhsa_system_vgpr_workitem_id {}\n", dimensions - 1);
        let launched = probe(&directive).run(size, size);
        let id = |lane: u32| {
            let all = [lane % 4, lane / 4 % 4, lane / 16];
            (0..dimensions).map(|axis| all[axis] << (10 * axis)).sum::<u32>()
        };
        let found: Vec<u32> = (0..32).map(id).collect();
        assert_eq!(launched[0].ids[..32], found, "{dimensions} dimensions");
    }
}

/// ENABLE_SGPR_*, in the guide's order, dense from s0 on, and USER_SGPR_COUNT, behind which the workgroup's are.
#[test]
fn user_registers_are_dense_and_in_order() {
    let (packet, queue, kernarg, id) = (Probe::PACKET, Probe::QUEUE, Probe::KERNARG, Probe::PACKET_ID);
    let wanted = [
        ("dispatch_ptr", packet),
        ("queue_ptr", queue),
        ("kernarg_segment_ptr", kernarg),
        ("dispatch_id", id),
    ];
    let scratch = ".amdhsa_enable_private_segment 1\n.amdhsa_private_segment_fixed_size 21\n";
    for mask in 0..1u32 << wanted.len() {
        for size in [false, true] {
            let asked =
                wanted.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 != 0).map(|(_, wanted)| wanted);
            let mut directives: String =
                asked.clone().map(|(name, _)| format!(".amdhsa_user_sgpr_{name} 1\n")).collect();
            let mut expected: Vec<u32> =
                asked.flat_map(|(_, value)| [*value as u32, (value >> 32) as u32]).collect();
            if size {
                directives += ".amdhsa_user_sgpr_private_segment_size 1\n";
                directives += scratch;
                // A multiple of a word.
                expected.push(24);
            }
            // The workgroup's number in x, where the next one would be.
            expected.push(0);
            assert_eq!(one(&directives).scalars[..expected.len()], expected, "{directives}");
        }
    }
    let counted = one(
        ".amdhsa_user_sgpr_dispatch_id 1\n.amdhsa_user_sgpr_count 13\n.amdhsa_system_sgpr_workgroup_info 1\n",
    );
    assert_eq!(counted.scalars[..2], [id as u32, (id >> 32) as u32]);
    // One wave, which is the first; the number in x is before it.
    assert_eq!(counted.scalars[13..15], [0, 1 << 31 | 1]);
}

/// ENABLE_SGPR_WORKGROUP_ID_X, _Y and _Z: any of them, one behind the other.
#[test]
fn workgroups_have_the_numbers_that_are_asked_for() {
    for mask in 0..8u32 {
        let axes: Vec<usize> = (0..3).filter(|axis| mask >> axis & 1 != 0).collect();
        let directive = |(axis, name): (usize, &str)| {
            format!(".amdhsa_system_sgpr_workgroup_id_{name} {}\n", mask >> axis & 1)
        };
        let directives: String = (0..3).zip(["x", "y", "z"]).map(directive).collect();
        let mut found: Vec<Vec<u32>> = probe(&directives)
            .run([2, 3, 2], [1, 1, 1])
            .iter()
            .map(|launched| launched.scalars[..axes.len()].to_vec())
            .collect();
        let places = (0..12u32).map(|number| [number % 2, number / 2 % 3, number / 6]);
        let mut expected: Vec<Vec<u32>> =
            places.map(|place| axes.iter().map(|axis| place[*axis]).collect()).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{directives}");
    }
}

/// ENABLE_SGPR_WORKGROUP_INFO: bit 31 of the workgroup's first wave, and how many waves it has.
#[test]
fn waves_know_whether_they_are_the_first_and_of_how_many() {
    let directives = ".amdhsa_system_sgpr_workgroup_id_x 0\n.amdhsa_system_sgpr_workgroup_info 1\n";
    // A whole workgroup of three waves, and one at the edge of two.
    let launched = probe(directives).run([256 + 32, 1, 1], [192, 1, 1]);
    let mut found: Vec<u32> = launched.iter().map(|launched| launched.scalars[0]).collect();
    found.sort_unstable();
    assert_eq!(found, [2, 3, 3, 1 << 31 | 2, 1 << 31 | 3]);
}

/// FLOAT_ROUND_MODE_*, FLOAT_DENORM_MODE_*, ENABLE_DX10_CLAMP and ENABLE_IEEE_MODE are the MODE register at the start.
#[test]
fn modes_are_those_that_are_asked_for() {
    let fields = [
        ("float_round_mode_32", 0, 3),
        ("float_round_mode_16_64", 2, 3),
        ("float_denorm_mode_32", 4, 3),
        ("float_denorm_mode_16_64", 6, 3),
        ("dx10_clamp", 8, 1),
        ("ieee_mode", 9, 1),
    ];
    for (name, shift, most) in fields {
        for value in 0..=most {
            let others = fields.iter().filter(|(other, ..)| *other != name);
            let mut directives: String = others.map(|(other, ..)| format!(".amdhsa_{other} 0\n")).collect();
            directives += &format!(".amdhsa_{name} {value}\n");
            assert_eq!(one(&directives).mode, value << shift, "{name} {value}");
        }
    }
}

/// ENABLE_PRIVATE_SEGMENT and PRIVATE_SEGMENT_FIXED_SIZE: a lane has so much scratch memory, or none.
#[test]
fn lanes_have_scratch_memory_if_it_is_enabled() {
    let enabled = ".amdhsa_enable_private_segment 1\n.amdhsa_private_segment_fixed_size 8\n";
    let with = |directives: &str, offset: u32, dispatched: u32| {
        let text = format!("scratch_store_dword off, v1, off offset:{offset}\n");
        probe(directives).before(&text).private_bytes(dispatched).try_run([64, 1, 1], [64, 1, 1]).map(drop)
    };
    assert_eq!(with(enabled, 4, 0), Ok(()));
    let past = |offset, bytes| Err(Fault::Aperture { space: "scratch", offset, bytes });
    assert_eq!(with(enabled, 8, 0), past(8, 8));
    // What a dispatch asks for, where the size is not known before.
    let dynamic = ".amdhsa_enable_private_segment 1\n.amdhsa_uses_dynamic_stack 1\n";
    assert_eq!(with(dynamic, 60, 64), Ok(()));
    assert_eq!(with(dynamic, 64, 64), past(64, 64));
    assert_eq!(with("", 0, 64), past(0, 0));
}

/// USES_DYNAMIC_STACK is what the kernel's symbol is asked for.
#[test]
fn stacks_of_unknown_size_are_told() {
    for value in [false, true] {
        let file = probe(&format!(".amdhsa_uses_dynamic_stack {}\n", u8::from(value))).file;
        assert_eq!(CodeObject::read(&file).expect("it is read").kernels["probe.kd"].dynamic_stack, value);
    }
}

/// KERNARG_PRELOAD_SPEC_LENGTH and _OFFSET: words of the arguments, behind the registers of the properties.
#[test]
fn arguments_are_preloaded_from_their_offset() {
    let directives = ".amdhsa_user_sgpr_kernarg_segment_ptr 1\n.amdhsa_user_sgpr_kernarg_preload_length 3\n\
                      .amdhsa_user_sgpr_kernarg_preload_offset 2\n.amdhsa_kernarg_size 32\n";
    let found = probe(directives).with_arguments().run([64, 1, 1], [64, 1, 1]);
    assert_eq!(found[0].scalars[2..6], [102, 103, 104, 0]);
    // KERNARG_SIZE, which counts where no metadata says it: without the words that are preloaded.
    let mut file = probe(directives).file;
    let place = CodeObject::read(&file).expect("it is read").kernels["probe.kd"].descriptor_offset as usize;
    file[place + 8] = 16;
    let refused = CodeObject::read(&file).expect_err("there are four words").to_string();
    assert!(refused.contains("preloads more than its 16 bytes of arguments"), "{refused}");
}

/// TG_SPLIT: waves that may be apart share no local memory. GROUP_SEGMENT_FIXED_SIZE: what there is of it.
#[test]
fn split_workgroups_have_no_local_memory() {
    assert_eq!(one(".amdhsa_tg_split 1\n").ids[5], 5);
    let read = |directives: &str| CodeObject::read(&probe(directives).file).map_err(|refused| refused.0);
    let refused = read(".amdhsa_tg_split 1\n.amdhsa_group_segment_fixed_size 16\n").unwrap_err();
    assert!(refused.contains("compile it without -mtgsplit"), "{refused}");
    assert_eq!(
        read(".amdhsa_group_segment_fixed_size 65536\n").unwrap().kernels["probe.kd"].descriptor.group_bytes,
        65536
    );
    let refused = read(".amdhsa_group_segment_fixed_size 65540\n").unwrap_err();
    assert!(refused.contains("65540 bytes of local memory; a workgroup has 65536"), "{refused}");
}

/// GRANULATED_WORKITEM_VGPR_COUNT and ACCUM_OFFSET.
#[test]
fn registers_are_as_many_as_are_asked_for() {
    for (next_free, offset, registers) in
        [(8, 8, 8), (9, 12, 16), (256, 256, 256), (512, 256, 512), (24, 4, 24)]
    {
        let directives = format!(
            ".amdhsa_next_free_vgpr {next_free}\n.amdhsa_next_free_sgpr 70\n.amdhsa_accum_offset {offset}\n"
        );
        let object = CodeObject::read(&Probe::new(&directives).file).expect("it is read");
        let descriptor = object.kernels["probe.kd"].descriptor;
        assert_eq!((descriptor.vector_registers, descriptor.accumulation), (registers, offset));
    }
}

/// Bits that are 0, or ask for what is not there, and numbers that contradict each other.
#[test]
fn what_cannot_be_true_is_refused() {
    let probe = probe(".amdhsa_user_sgpr_kernarg_segment_ptr 1\n");
    let object = CodeObject::read(&probe.file).expect("it is read");
    // The first segment begins where the file does.
    let place = object.kernels["probe.kd"].descriptor_offset as usize;
    let with = |at: usize, change: &dyn Fn(u32) -> u32| {
        let mut file = probe.file.clone();
        let word: &mut [u8; 4] = file[place + at..].first_chunk_mut().expect("it is in the file");
        *word = change(u32::from_le_bytes(*word)).to_le_bytes();
        CodeObject::read(&file).map(drop).map_err(|refused| refused.0)
    };
    let zero: [(usize, &[u32], &str); 19] = [
        (12, &[0, 31], "the reserved bytes 12 to 15"),
        (24, &[0], "the reserved bytes 24 to 43"),
        (28, &[7], "the reserved bytes 24 to 43"),
        (32, &[8], "the reserved bytes 24 to 43"),
        (36, &[31], "the reserved bytes 24 to 43"),
        (40, &[31], "the reserved bytes 24 to 43"),
        (44, &[6, 15, 17, 31], "reserved bits of COMPUTE_PGM_RSRC3"),
        (48, &[10, 11], "PRIORITY"),
        (48, &[20], "PRIV"),
        (48, &[22], "DEBUG_MODE"),
        (48, &[24], "BULKY"),
        (48, &[25], "CDBG_USER"),
        (48, &[27, 28, 29, 30, 31], "reserved bits of COMPUTE_PGM_RSRC1"),
        (52, &[6], "ENABLE_TRAP_HANDLER"),
        (52, &[13], "ENABLE_EXCEPTION_ADDRESS_WATCH"),
        (52, &[14], "ENABLE_EXCEPTION_MEMORY"),
        (52, &[15, 23], "GRANULATED_LDS_SIZE"),
        (52, &[31], "the reserved bit of COMPUTE_PGM_RSRC2"),
        (60, &[0, 31], "the reserved bytes 60 to 63"),
    ];
    let properties: [(usize, &[u32], &str); 3] = [
        (56, &[0], "ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER"),
        (56, &[5], "ENABLE_SGPR_FLAT_SCRATCH_INIT"),
        (56, &[7, 8, 9, 12, 13, 14, 15], "reserved bits of the kernel code properties"),
    ];
    for (at, bits, what) in zero.into_iter().chain(properties) {
        for bit in bits {
            let refused = with(at, &|word| word | 1 << bit).expect_err(what);
            let sentence =
                format!("its descriptor has bits set that are 0 for gfx942 ({what}): compile it again");
            assert!(refused.contains(&sentence), "bit {bit} at {at}: {refused}");
        }
    }
    for (at, bit, what) in [
        (56, 10, "it asks for waves of 32 lanes, which gfx942 does not have"),
        (48, 26, "it asks for 16-bit results that do not overflow"),
        (52, 24, "it asks for traps of exceptions"),
        (52, 30, "it asks for traps of exceptions"),
    ] {
        let refused = with(at, &|word| word | 1 << bit).expect_err(what);
        assert!(refused.contains(what), "{refused}");
    }
    /// The word of the descriptor that is changed, how, and what is said of it.
    type Change<'a> = (usize, &'a dyn Fn(u32) -> u32, &'a str);
    let changes: [Change<'_>; 9] = [
        (4, &|_| 16, "it declares 16 bytes of scratch without enabling it"),
        (4, &|_| 2 << 20, "bytes of scratch"),
        (16, &|word| word + 4, "the entry of the kernel probe.kd is not at a multiple of 256"),
        (44, &|word| word | 63, "its accumulation registers begin at 256, and it has 16 registers in all"),
        (48, &|word| word & !(15 << 6) | 14 << 6, "112 are the most"),
        (52, &|word| word | 3 << 11, "work-item ids in a way that is not defined"),
        (
            52,
            &|word| word & !(31 << 1) | 1 << 1,
            "it asks for 2 user registers (preloaded arguments: 0) and says that there are 1",
        ),
        (52, &|word| word & !(31 << 1) | 17 << 1, "16 are the most"),
        (
            56,
            &|word| word | 2 << 16,
            "it asks for 4 user registers (preloaded arguments: 2) and says that there are 2",
        ),
    ];
    for (at, change, what) in changes {
        let refused = with(at, change).expect_err(what);
        assert!(refused.contains(what), "{what}: {refused}");
    }
    // Sixteen registers that are filled in are all that the least number of them has.
    let few = |word: u32| word & !(15 << 6);
    assert_eq!(with(48, &few), Ok(()));
    let filled = Probe::new(
        ".amdhsa_next_free_vgpr 16\n.amdhsa_next_free_sgpr 8\n.amdhsa_accum_offset 16\n.amdhsa_user_sgpr_count 16\n",
    );
    let refused =
        CodeObject::read(&filled.file).expect_err("the workgroup's number has no place").to_string();
    assert!(refused.contains("17 of its scalar registers are filled in, and it has 16"), "{refused}");
}
