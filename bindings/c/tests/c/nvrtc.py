"""Compiles a file of CUDA C++ by NVRTC: `nvrtc.py FOLDER_OF_THE_LIBRARY SOURCE HEADER...`."""
import ctypes, glob, os, sys

library = ctypes.CDLL(sorted(glob.glob(os.path.join(sys.argv[1], "libnvrtc.so.*")))[0])
source, *headers = ([os.path.basename(path).encode(), open(path, "rb").read()] for path in sys.argv[2:])
texts = (ctypes.c_char_p * len(headers))(*(text for _, text in headers))
names = (ctypes.c_char_p * len(headers))(*(name for name, _ in headers))
options = (ctypes.c_char_p * 2)(b"-arch=sm_90", b"-std=c++17")
program, size = ctypes.c_void_p(), ctypes.c_size_t()
library.nvrtcCreateProgram(ctypes.byref(program), source[1], source[0], len(headers), texts, names)
status = library.nvrtcCompileProgram(program, len(options), options)
library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
log = ctypes.create_string_buffer(size.value)
library.nvrtcGetProgramLog(program, log)
if status or b"warning" in log.value:
    sys.exit(log.value.decode())
print("compiled")
