/*
 * Files, folders, memory of the device, arguments, environment and clock of the host, for kernels that call by
 * hostcall_device.h. Made of the traits in kernel/device/src/services.
 *
 *     uint64_t file, length = sizeof text;
 *     if (hostcall_files_open(context, "data.txt", 8, HOSTCALL_OPEN_READ, &file, 0) == HOSTCALL_CALL_OK) {
 *         hostcall_files_read(context, file, text, &length, 0);
 *         hostcall_files_close(context, file, 0);
 *     }
 *
 * Each function returns a hostcall_call_status, and takes a time limit in microseconds last (0: none). Texts are bytes and how
 * many; what is read goes to a buffer, whose size is replaced by how much came. Which files there are is the host's to say
 * (`Builtins::builder().dir(..)` in Rust, `hostcall_options_dir` in C): without a folder of its there are none.
 */
#ifndef HOSTCALL_SERVICES_H
#define HOSTCALL_SERVICES_H
#include "hostcall_device.h"

#define HOSTCALL_OPEN_READ 1u
#define HOSTCALL_OPEN_WRITE 2u
#define HOSTCALL_OPEN_APPEND 4u
#define HOSTCALL_OPEN_TRUNCATE 8u
#define HOSTCALL_OPEN_CREATE 16u
#define HOSTCALL_OPEN_CREATE_NEW 32u
#define HOSTCALL_KIND_FILE 0u
#define HOSTCALL_KIND_DIR 1u
#define HOSTCALL_KIND_SYMLINK 2u
#define HOSTCALL_KIND_OTHER 3u

/* What hostcall_code says of files and folders: one of these, or an `errno` of the host's Linux. */
#define HOSTCALL_IO_NOT_FOUND (-1)
#define HOSTCALL_IO_PERMISSION_DENIED (-2)
#define HOSTCALL_IO_ALREADY_EXISTS (-3)
#define HOSTCALL_IO_OUTSIDE_DIR (-4)
#define HOSTCALL_IO_INVALID_INPUT (-5)
#define HOSTCALL_IO_TOO_MANY_OPEN (-6)
#define HOSTCALL_IO_CLOSED (-7)
#define HOSTCALL_IO_UNEXPECTED_END (-8)
#define HOSTCALL_IO_NO_DIR (-10)

/* The code of a call that ended with HOSTCALL_CALL_FAILED. */
HOSTCALL_FUNCTION int32_t hostcall_code(uint64_t status) {
    return (int32_t)(uint32_t)(status >> 8);
}

/* Files of the host. Paths are bytes, as the host's system has them. Fails with HOSTCALL_IO_NOT_FOUND and the like. */
#define HOSTCALL_FILES_OPEN HOSTCALL_METHOD(64, 0xfece2)
#define HOSTCALL_FILES_CLOSE HOSTCALL_METHOD(65, 0x5b923)
#define HOSTCALL_FILES_READ HOSTCALL_METHOD(66, 0xd20d4)
#define HOSTCALL_FILES_READ_AT HOSTCALL_METHOD(67, 0x82a39)
#define HOSTCALL_FILES_WRITE HOSTCALL_METHOD(68, 0xac980)
#define HOSTCALL_FILES_WRITE_AT HOSTCALL_METHOD(69, 0xc3d4b)
#define HOSTCALL_FILES_SEEK HOSTCALL_METHOD(70, 0xe2fbe)
#define HOSTCALL_FILES_LEN HOSTCALL_METHOD(71, 0xac7c7)
#define HOSTCALL_FILES_SET_LEN HOSTCALL_METHOD(72, 0x50d5a)
#define HOSTCALL_FILES_SYNC HOSTCALL_METHOD(73, 0xbc7dc)
#define HOSTCALL_FILES_REMOVE HOSTCALL_METHOD(74, 0x8c7f1)
#define HOSTCALL_FILES_RENAME HOSTCALL_METHOD(75, 0x5429c)
#define HOSTCALL_FILES_CREATE_DIR HOSTCALL_METHOD(76, 0x43a49)
#define HOSTCALL_FILES_REMOVE_DIR HOSTCALL_METHOD(77, 0x284bd)
#define HOSTCALL_FILES_MAP HOSTCALL_METHOD(78, 0x3fa4b)
#define HOSTCALL_FILES_UNMAP HOSTCALL_METHOD(79, 0x4dafc)

HOSTCALL_FUNCTION void hostcall_files_put_u32_(uint64_t *words, uint32_t v) {
    words[0] = v;
}
HOSTCALL_FUNCTION int hostcall_files_get_u32_(const uint64_t *words, uint32_t *v) {
    const uint64_t w = words[0];
    *v = (uint32_t)w;
    return (uint64_t)*v == w;
}

HOSTCALL_FUNCTION void hostcall_files_put_u64_(uint64_t *words, uint64_t v) {
    words[0] = v;
}
HOSTCALL_FUNCTION int hostcall_files_get_u64_(const uint64_t *words, uint64_t *v) {
    const uint64_t w = words[0];
    *v = (uint64_t)w;
    return (uint64_t)*v == w;
}

/* Opens a file; `flags` are those of HOSTCALL_OPEN_READ and the like. Gives the file's handle. */
HOSTCALL_FUNCTION uint64_t hostcall_files_open(uint64_t context, const void *path, uint64_t path_count, uint32_t flags, uint64_t *result, uint32_t timeout_us) {
    uint64_t words_[2];
    words_[0] = path_count;
    hostcall_files_put_u32_(words_ + 1, flags);
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 2, 1, path, path_count, results_, 0, 0, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FILES_OPEN, &call_, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_files_get_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* Closes a file. */
HOSTCALL_FUNCTION uint64_t hostcall_files_close(uint64_t context, uint64_t file, uint32_t timeout_us) {
    uint64_t words_[1];
    hostcall_files_put_u64_(words_ + 0, file);
    uint64_t results_[1];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_FILES_CLOSE, words_, 1, results_, 0, timeout_us);
    return status_;
}

/* Posts Files::close: nobody waits for it. Returns whether it is on its way. */
HOSTCALL_FUNCTION int hostcall_files_post_close(uint64_t context, uint64_t file) {
    uint64_t words_[1];
    hostcall_files_put_u64_(words_ + 0, file);
    return hostcall_post_words(context, HOSTCALL_FILES_CLOSE, words_, 1);
}

/* Reads from the file's position on, which moves. */
HOSTCALL_FUNCTION uint64_t hostcall_files_read(uint64_t context, uint64_t file, void *out, uint64_t *out_count, uint32_t timeout_us) {
    uint64_t words_[1];
    hostcall_files_put_u64_(words_ + 0, file);
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 1, 0, 0, 0, results_, out, *out_count, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FILES_READ, &call_, timeout_us);
    *out_count = status_ == HOSTCALL_CALL_OK ? call_.filled : 0;
    return status_;
}

/* Reads from `offset` on. The file's position stays. */
HOSTCALL_FUNCTION uint64_t hostcall_files_read_at(uint64_t context, uint64_t file, uint64_t offset, void *out, uint64_t *out_count, uint32_t timeout_us) {
    uint64_t words_[2];
    hostcall_files_put_u64_(words_ + 0, file);
    hostcall_files_put_u64_(words_ + 1, offset);
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 2, 0, 0, 0, results_, out, *out_count, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FILES_READ_AT, &call_, timeout_us);
    *out_count = status_ == HOSTCALL_CALL_OK ? call_.filled : 0;
    return status_;
}

/* Writes at the file's position, which moves. Gives the bytes written, less than all at times. */
HOSTCALL_FUNCTION uint64_t hostcall_files_write(uint64_t context, uint64_t file, const void *data, uint64_t data_count, uint64_t *result, uint32_t timeout_us) {
    uint64_t words_[2];
    hostcall_files_put_u64_(words_ + 0, file);
    words_[1] = data_count;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 2, 1, data, data_count, results_, 0, 0, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FILES_WRITE, &call_, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_files_get_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* Writes at `offset`. The file's position stays. */
HOSTCALL_FUNCTION uint64_t hostcall_files_write_at(uint64_t context, uint64_t file, uint64_t offset, const void *data, uint64_t data_count, uint64_t *result, uint32_t timeout_us) {
    uint64_t words_[3];
    hostcall_files_put_u64_(words_ + 0, file);
    hostcall_files_put_u64_(words_ + 1, offset);
    words_[2] = data_count;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 3, 1, data, data_count, results_, 0, 0, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FILES_WRITE_AT, &call_, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_files_get_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

HOSTCALL_FUNCTION void hostcall_files_put_i64_(uint64_t *words, int64_t v) {
    words[0] = (uint64_t)v;
}
HOSTCALL_FUNCTION int hostcall_files_get_i64_(const uint64_t *words, int64_t *v) {
    const uint64_t w = words[0];
    *v = (int64_t)w;
    return (uint64_t)(int64_t)*v == w;
}

/* Moves the file's position by `offset` from its start (`whence` 0), its position (1) or its end (2), and
 * gives the new one from the start. */
HOSTCALL_FUNCTION uint64_t hostcall_files_seek(uint64_t context, uint64_t file, uint32_t whence, int64_t offset, uint64_t *result, uint32_t timeout_us) {
    uint64_t words_[3];
    hostcall_files_put_u64_(words_ + 0, file);
    hostcall_files_put_u32_(words_ + 1, whence);
    hostcall_files_put_i64_(words_ + 2, offset);
    uint64_t results_[1];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_FILES_SEEK, words_, 3, results_, 1, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_files_get_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* Bytes in the file. */
HOSTCALL_FUNCTION uint64_t hostcall_files_len(uint64_t context, uint64_t file, uint64_t *result, uint32_t timeout_us) {
    uint64_t words_[1];
    hostcall_files_put_u64_(words_ + 0, file);
    uint64_t results_[1];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_FILES_LEN, words_, 1, results_, 1, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_files_get_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* Cuts the file, or lengthens it with zeros. */
HOSTCALL_FUNCTION uint64_t hostcall_files_set_len(uint64_t context, uint64_t file, uint64_t len, uint32_t timeout_us) {
    uint64_t words_[2];
    hostcall_files_put_u64_(words_ + 0, file);
    hostcall_files_put_u64_(words_ + 1, len);
    uint64_t results_[1];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_FILES_SET_LEN, words_, 2, results_, 0, timeout_us);
    return status_;
}

/* Posts Files::set_len: nobody waits for it. Returns whether it is on its way. */
HOSTCALL_FUNCTION int hostcall_files_post_set_len(uint64_t context, uint64_t file, uint64_t len) {
    uint64_t words_[2];
    hostcall_files_put_u64_(words_ + 0, file);
    hostcall_files_put_u64_(words_ + 1, len);
    return hostcall_post_words(context, HOSTCALL_FILES_SET_LEN, words_, 2);
}

/* Waits until the file's content has reached the disk. */
HOSTCALL_FUNCTION uint64_t hostcall_files_sync(uint64_t context, uint64_t file, uint32_t timeout_us) {
    uint64_t words_[1];
    hostcall_files_put_u64_(words_ + 0, file);
    uint64_t results_[1];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_FILES_SYNC, words_, 1, results_, 0, timeout_us);
    return status_;
}

/* Posts Files::sync: nobody waits for it. Returns whether it is on its way. */
HOSTCALL_FUNCTION int hostcall_files_post_sync(uint64_t context, uint64_t file) {
    uint64_t words_[1];
    hostcall_files_put_u64_(words_ + 0, file);
    return hostcall_post_words(context, HOSTCALL_FILES_SYNC, words_, 1);
}

/* Removes a file. */
HOSTCALL_FUNCTION uint64_t hostcall_files_remove(uint64_t context, const void *path, uint64_t path_count, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = path_count;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 1, 0, path, path_count, results_, 0, 0, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FILES_REMOVE, &call_, timeout_us);
    return status_;
}

/* Renames a file or directory, in place of what has the new name. */
HOSTCALL_FUNCTION uint64_t hostcall_files_rename(uint64_t context, const void *from, uint64_t from_count, const void *to, uint64_t to_count, uint32_t timeout_us) {
    uint64_t words_[2];
    words_[0] = from_count;
    words_[1] = to_count;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 2, 0, from, from_count, results_, 0, 0, 0, to, to_count};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FILES_RENAME, &call_, timeout_us);
    return status_;
}

/* Makes a directory. */
HOSTCALL_FUNCTION uint64_t hostcall_files_create_dir(uint64_t context, const void *path, uint64_t path_count, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = path_count;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 1, 0, path, path_count, results_, 0, 0, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FILES_CREATE_DIR, &call_, timeout_us);
    return status_;
}

/* Removes an empty directory. */
HOSTCALL_FUNCTION uint64_t hostcall_files_remove_dir(uint64_t context, const void *path, uint64_t path_count, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = path_count;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 1, 0, path, path_count, results_, 0, 0, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FILES_REMOVE_DIR, &call_, timeout_us);
    return status_;
}

HOSTCALL_FUNCTION void hostcall_files_put_bool_(uint64_t *words, uint8_t v) {
    words[0] = v != 0;
}
HOSTCALL_FUNCTION int hostcall_files_get_bool_(const uint64_t *words, uint8_t *v) {
    const uint64_t w = words[0];
    *v = (uint8_t)w;
    return (uint64_t)*v == w && w <= 1;
}

struct hostcall_files_tuple_3_u64_u64_u64 {
    uint64_t _0;
    uint64_t _1;
    uint64_t _2;
};

HOSTCALL_FUNCTION void hostcall_files_put_tuple_3_u64_u64_u64_(uint64_t *words, const struct hostcall_files_tuple_3_u64_u64_u64 *v) {
    {
        hostcall_files_put_u64_(words + 0, v->_0);
        hostcall_files_put_u64_(words + 1, v->_1);
        hostcall_files_put_u64_(words + 2, v->_2);
    }
}
HOSTCALL_FUNCTION int hostcall_files_get_tuple_3_u64_u64_u64_(const uint64_t *words, struct hostcall_files_tuple_3_u64_u64_u64 *v) {
    return hostcall_files_get_u64_(words + 0, &v->_0) && hostcall_files_get_u64_(words + 1, &v->_1) && hostcall_files_get_u64_(words + 2, &v->_2);
}

/* Maps a file, for writing too if `writable` is set, and gives the mapping's handle, where the device
 * reaches the file's content (0: nowhere), and the bytes that the file has. */
HOSTCALL_FUNCTION uint64_t hostcall_files_map(uint64_t context, uint64_t file, uint8_t writable, struct hostcall_files_tuple_3_u64_u64_u64 *result, uint32_t timeout_us) {
    uint64_t words_[2];
    hostcall_files_put_u64_(words_ + 0, file);
    hostcall_files_put_bool_(words_ + 1, writable);
    uint64_t results_[3];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_FILES_MAP, words_, 2, results_, 3, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_files_get_tuple_3_u64_u64_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* Ends a mapping, which no lane uses any more. */
HOSTCALL_FUNCTION uint64_t hostcall_files_unmap(uint64_t context, uint64_t mapping, uint32_t timeout_us) {
    uint64_t words_[1];
    hostcall_files_put_u64_(words_ + 0, mapping);
    uint64_t results_[1];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_FILES_UNMAP, words_, 1, results_, 0, timeout_us);
    return status_;
}

/* Posts Files::unmap: nobody waits for it. Returns whether it is on its way. */
HOSTCALL_FUNCTION int hostcall_files_post_unmap(uint64_t context, uint64_t mapping) {
    uint64_t words_[1];
    hostcall_files_put_u64_(words_ + 0, mapping);
    return hostcall_post_words(context, HOSTCALL_FILES_UNMAP, words_, 1);
}

/* Folders of the host, and what it says of files. Paths are bytes, as the host's system has them. Fails with HOSTCALL_IO_NOT_FOUND and
 * the like. */
#define HOSTCALL_FOLDERS_METADATA HOSTCALL_METHOD(88, 0x4d28a)
#define HOSTCALL_FOLDERS_METADATA_OF_FILE HOSTCALL_METHOD(89, 0x5bd9f)
#define HOSTCALL_FOLDERS_SET_PERMISSIONS HOSTCALL_METHOD(90, 0xf1eac)
#define HOSTCALL_FOLDERS_ENTRIES HOSTCALL_METHOD(91, 0xdd32f)
#define HOSTCALL_FOLDERS_CREATE_DIR_ALL HOSTCALL_METHOD(92, 0xa6b7f)
#define HOSTCALL_FOLDERS_REMOVE_DIR_ALL HOSTCALL_METHOD(93, 0x6169f)
#define HOSTCALL_FOLDERS_COPY HOSTCALL_METHOD(94, 0xb0772)
#define HOSTCALL_FOLDERS_CANONICALIZE HOSTCALL_METHOD(95, 0x964bb)

HOSTCALL_FUNCTION void hostcall_folders_put_bool_(uint64_t *words, uint8_t v) {
    words[0] = v != 0;
}
HOSTCALL_FUNCTION int hostcall_folders_get_bool_(const uint64_t *words, uint8_t *v) {
    const uint64_t w = words[0];
    *v = (uint8_t)w;
    return (uint64_t)*v == w && w <= 1;
}

HOSTCALL_FUNCTION void hostcall_folders_put_u32_(uint64_t *words, uint32_t v) {
    words[0] = v;
}
HOSTCALL_FUNCTION int hostcall_folders_get_u32_(const uint64_t *words, uint32_t *v) {
    const uint64_t w = words[0];
    *v = (uint32_t)w;
    return (uint64_t)*v == w;
}

HOSTCALL_FUNCTION void hostcall_folders_put_u64_(uint64_t *words, uint64_t v) {
    words[0] = v;
}
HOSTCALL_FUNCTION int hostcall_folders_get_u64_(const uint64_t *words, uint64_t *v) {
    const uint64_t w = words[0];
    *v = (uint64_t)w;
    return (uint64_t)*v == w;
}

HOSTCALL_FUNCTION void hostcall_folders_put_i64_(uint64_t *words, int64_t v) {
    words[0] = (uint64_t)v;
}
HOSTCALL_FUNCTION int hostcall_folders_get_i64_(const uint64_t *words, int64_t *v) {
    const uint64_t w = words[0];
    *v = (int64_t)w;
    return (uint64_t)(int64_t)*v == w;
}

struct hostcall_folders_tuple_4_u32_u64_u32_i64 {
    uint32_t _0;
    uint64_t _1;
    uint32_t _2;
    int64_t _3;
};

HOSTCALL_FUNCTION void hostcall_folders_put_tuple_4_u32_u64_u32_i64_(uint64_t *words, const struct hostcall_folders_tuple_4_u32_u64_u32_i64 *v) {
    {
        hostcall_folders_put_u32_(words + 0, v->_0);
        hostcall_folders_put_u64_(words + 1, v->_1);
        hostcall_folders_put_u32_(words + 2, v->_2);
        hostcall_folders_put_i64_(words + 3, v->_3);
    }
}
HOSTCALL_FUNCTION int hostcall_folders_get_tuple_4_u32_u64_u32_i64_(const uint64_t *words, struct hostcall_folders_tuple_4_u32_u64_u32_i64 *v) {
    return hostcall_folders_get_u32_(words + 0, &v->_0) && hostcall_folders_get_u64_(words + 1, &v->_1) && hostcall_folders_get_u32_(words + 2, &v->_2) && hostcall_folders_get_i64_(words + 3, &v->_3);
}

/* The kind of a path's file (one of HOSTCALL_KIND_FILE and the like), its bytes, its permissions, and when it was modified, in nanoseconds
 * since 1970. Where `follow` is not set, a symbolic link is told of and not what it leads to. */
HOSTCALL_FUNCTION uint64_t hostcall_folders_metadata(uint64_t context, const void *path, uint64_t path_count, uint8_t follow, struct hostcall_folders_tuple_4_u32_u64_u32_i64 *result, uint32_t timeout_us) {
    uint64_t words_[2];
    words_[0] = path_count;
    hostcall_folders_put_bool_(words_ + 1, follow);
    uint64_t results_[4];
    struct hostcall_bytes call_ = {words_, 2, 4, path, path_count, results_, 0, 0, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FOLDERS_METADATA, &call_, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_folders_get_tuple_4_u32_u64_u32_i64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* The same of an open file. */
HOSTCALL_FUNCTION uint64_t hostcall_folders_metadata_of_file(uint64_t context, uint64_t file, struct hostcall_folders_tuple_4_u32_u64_u32_i64 *result, uint32_t timeout_us) {
    uint64_t words_[1];
    hostcall_folders_put_u64_(words_ + 0, file);
    uint64_t results_[4];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_FOLDERS_METADATA_OF_FILE, words_, 1, results_, 4, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_folders_get_tuple_4_u32_u64_u32_i64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* Sets a file's permissions: the last twelve bits of its mode. */
HOSTCALL_FUNCTION uint64_t hostcall_folders_set_permissions(uint64_t context, const void *path, uint64_t path_count, uint32_t mode, uint32_t timeout_us) {
    uint64_t words_[2];
    words_[0] = path_count;
    hostcall_folders_put_u32_(words_ + 1, mode);
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 2, 0, path, path_count, results_, 0, 0, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FOLDERS_SET_PERMISSIONS, &call_, timeout_us);
    return status_;
}

/* The bytes of a folder's entries in the order of their names, and the entries if all fit `out`: of each a byte for its
 * kind, two for the length of its name, of which the first counts least, and the name. */
HOSTCALL_FUNCTION uint64_t hostcall_folders_entries(uint64_t context, const void *path, uint64_t path_count, void *out, uint64_t *out_count, uint64_t *result, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = path_count;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 1, 1, path, path_count, results_, out, *out_count, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FOLDERS_ENTRIES, &call_, timeout_us);
    *out_count = status_ == HOSTCALL_CALL_OK ? call_.filled : 0;
    if (status_ == HOSTCALL_CALL_OK && !hostcall_folders_get_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* Makes a folder, and those above it that are not there. */
HOSTCALL_FUNCTION uint64_t hostcall_folders_create_dir_all(uint64_t context, const void *path, uint64_t path_count, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = path_count;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 1, 0, path, path_count, results_, 0, 0, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FOLDERS_CREATE_DIR_ALL, &call_, timeout_us);
    return status_;
}

/* Removes a folder with all that is in it. */
HOSTCALL_FUNCTION uint64_t hostcall_folders_remove_dir_all(uint64_t context, const void *path, uint64_t path_count, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = path_count;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 1, 0, path, path_count, results_, 0, 0, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FOLDERS_REMOVE_DIR_ALL, &call_, timeout_us);
    return status_;
}

/* Copies a file's content and permissions in place of what has the new name. Gives the bytes copied. */
HOSTCALL_FUNCTION uint64_t hostcall_folders_copy(uint64_t context, const void *from, uint64_t from_count, const void *to, uint64_t to_count, uint64_t *result, uint32_t timeout_us) {
    uint64_t words_[2];
    words_[0] = from_count;
    words_[1] = to_count;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 2, 1, from, from_count, results_, 0, 0, 0, to, to_count};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FOLDERS_COPY, &call_, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_folders_get_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* The bytes of the path without links, `.` and `..`, and the path itself if it fits `out`. It is relative to the folder
 * that the host opened, unless that is `/`. */
HOSTCALL_FUNCTION uint64_t hostcall_folders_canonicalize(uint64_t context, const void *path, uint64_t path_count, void *out, uint64_t *out_count, uint64_t *result, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = path_count;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 1, 1, path, path_count, results_, out, *out_count, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_FOLDERS_CANONICALIZE, &call_, timeout_us);
    *out_count = status_ == HOSTCALL_CALL_OK ? call_.filled : 0;
    if (status_ == HOSTCALL_CALL_OK && !hostcall_folders_get_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* Memory of the device, for kernels that do not know before how much they need. */
#define HOSTCALL_HEAP_ALLOCATE HOSTCALL_METHOD(32, 0x1ab21)
#define HOSTCALL_HEAP_FREE HOSTCALL_METHOD(33, 0xf0fe8)

HOSTCALL_FUNCTION void hostcall_heap_put_u64_(uint64_t *words, uint64_t v) {
    words[0] = v;
}
HOSTCALL_FUNCTION int hostcall_heap_get_u64_(const uint64_t *words, uint64_t *v) {
    const uint64_t w = words[0];
    *v = (uint64_t)w;
    return (uint64_t)*v == w;
}

/* Device address of `bytes` of new memory of any content, aligned to `align` (a power of two up to
 * 65,536); 0 when there is no such memory left. */
HOSTCALL_FUNCTION uint64_t hostcall_heap_allocate(uint64_t context, uint64_t bytes, uint64_t align, uint64_t *result, uint32_t timeout_us) {
    uint64_t words_[2];
    hostcall_heap_put_u64_(words_ + 0, bytes);
    hostcall_heap_put_u64_(words_ + 1, align);
    uint64_t results_[1];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_HEAP_ALLOCATE, words_, 2, results_, 1, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_heap_get_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* Frees memory. Fails with the code 1 when `address` is none that hostcall_heap_allocate gave, or was
 * freed before.
 * # Safety
 * No lane may use the memory any more. */
HOSTCALL_FUNCTION uint64_t hostcall_heap_free(uint64_t context, uint64_t address, uint32_t timeout_us) {
    uint64_t words_[1];
    hostcall_heap_put_u64_(words_ + 0, address);
    uint64_t results_[1];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_HEAP_FREE, words_, 1, results_, 0, timeout_us);
    return status_;
}

/* Posts Heap::free: nobody waits for it. Returns whether it is on its way. */
HOSTCALL_FUNCTION int hostcall_heap_post_free(uint64_t context, uint64_t address) {
    uint64_t words_[1];
    hostcall_heap_put_u64_(words_ + 0, address);
    return hostcall_post_words(context, HOSTCALL_HEAP_FREE, words_, 1);
}

/* What a program was started with. */
#define HOSTCALL_ENVIRONMENT_ARGUMENT_COUNT HOSTCALL_METHOD(96, 0xbeb4d)
#define HOSTCALL_ENVIRONMENT_ARGUMENT HOSTCALL_METHOD(97, 0x16fc0)
#define HOSTCALL_ENVIRONMENT_VARIABLE HOSTCALL_METHOD(98, 0xe179c)
#define HOSTCALL_ENVIRONMENT_VARIABLE_AT HOSTCALL_METHOD(99, 0x59dd7)
#define HOSTCALL_ENVIRONMENT_CURRENT_DIR HOSTCALL_METHOD(100, 0x410be)
#define HOSTCALL_ENVIRONMENT_RANDOM HOSTCALL_METHOD(101, 0x61ff4)

HOSTCALL_FUNCTION void hostcall_environment_put_u32_(uint64_t *words, uint32_t v) {
    words[0] = v;
}
HOSTCALL_FUNCTION int hostcall_environment_get_u32_(const uint64_t *words, uint32_t *v) {
    const uint64_t w = words[0];
    *v = (uint32_t)w;
    return (uint64_t)*v == w;
}

/* How many arguments there are, the program's name included. */
HOSTCALL_FUNCTION uint64_t hostcall_environment_argument_count(uint64_t context, uint32_t *result, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = 0;
    uint64_t results_[1];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_ENVIRONMENT_ARGUMENT_COUNT, words_, 0, results_, 1, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_environment_get_u32_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

HOSTCALL_FUNCTION void hostcall_environment_put_u64_(uint64_t *words, uint64_t v) {
    words[0] = v;
}
HOSTCALL_FUNCTION int hostcall_environment_get_u64_(const uint64_t *words, uint64_t *v) {
    const uint64_t w = words[0];
    *v = (uint64_t)w;
    return (uint64_t)*v == w;
}

struct hostcall_environment_option_u64 {
    uint8_t is_some;
    uint64_t value;
};

HOSTCALL_FUNCTION void hostcall_environment_put_option_u64_(uint64_t *words, const struct hostcall_environment_option_u64 *v) {
    for (uint32_t i = 0; i < 2; i++)
        words[i] = 0;
    words[0] = v->is_some != 0;
    if (v->is_some) {
        hostcall_environment_put_u64_(words + 1, v->value);
    }
}
HOSTCALL_FUNCTION int hostcall_environment_get_option_u64_(const uint64_t *words, struct hostcall_environment_option_u64 *v) {
    v->is_some = (uint8_t)words[0];
    return words[0] == 0 || (words[0] == 1 && hostcall_environment_get_u64_(words + 1, &v->value));
}

/* The length of argument `index` in bytes, and the argument itself if it fits `out`. */
HOSTCALL_FUNCTION uint64_t hostcall_environment_argument(uint64_t context, uint32_t index, void *out, uint64_t *out_count, struct hostcall_environment_option_u64 *result, uint32_t timeout_us) {
    uint64_t words_[1];
    hostcall_environment_put_u32_(words_ + 0, index);
    uint64_t results_[2];
    struct hostcall_bytes call_ = {words_, 1, 2, 0, 0, results_, out, *out_count, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_ENVIRONMENT_ARGUMENT, &call_, timeout_us);
    *out_count = status_ == HOSTCALL_CALL_OK ? call_.filled : 0;
    if (status_ == HOSTCALL_CALL_OK && !hostcall_environment_get_option_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* The length of the value of environment variable `name` in bytes, and the value itself if it fits `out`. */
HOSTCALL_FUNCTION uint64_t hostcall_environment_variable(uint64_t context, const void *name, uint64_t name_count, void *out, uint64_t *out_count, struct hostcall_environment_option_u64 *result, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = name_count;
    uint64_t results_[2];
    struct hostcall_bytes call_ = {words_, 1, 2, name, name_count, results_, out, *out_count, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_ENVIRONMENT_VARIABLE, &call_, timeout_us);
    *out_count = status_ == HOSTCALL_CALL_OK ? call_.filled : 0;
    if (status_ == HOSTCALL_CALL_OK && !hostcall_environment_get_option_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* The same of environment variable `index` in the order of their names, as `NAME=value`. */
HOSTCALL_FUNCTION uint64_t hostcall_environment_variable_at(uint64_t context, uint32_t index, void *out, uint64_t *out_count, struct hostcall_environment_option_u64 *result, uint32_t timeout_us) {
    uint64_t words_[1];
    hostcall_environment_put_u32_(words_ + 0, index);
    uint64_t results_[2];
    struct hostcall_bytes call_ = {words_, 1, 2, 0, 0, results_, out, *out_count, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_ENVIRONMENT_VARIABLE_AT, &call_, timeout_us);
    *out_count = status_ == HOSTCALL_CALL_OK ? call_.filled : 0;
    if (status_ == HOSTCALL_CALL_OK && !hostcall_environment_get_option_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* The length in bytes of the path that relative paths begin at, and the path itself if it fits `out`. There is none where
 * the host opened no directory. */
HOSTCALL_FUNCTION uint64_t hostcall_environment_current_dir(uint64_t context, void *out, uint64_t *out_count, struct hostcall_environment_option_u64 *result, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = 0;
    uint64_t results_[2];
    struct hostcall_bytes call_ = {words_, 0, 2, 0, 0, results_, out, *out_count, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_ENVIRONMENT_CURRENT_DIR, &call_, timeout_us);
    *out_count = status_ == HOSTCALL_CALL_OK ? call_.filled : 0;
    if (status_ == HOSTCALL_CALL_OK && !hostcall_environment_get_option_u64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

/* Fills `out` with random bytes, fit for keys. */
HOSTCALL_FUNCTION uint64_t hostcall_environment_random(uint64_t context, void *out, uint64_t *out_count, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = 0;
    uint64_t results_[1];
    struct hostcall_bytes call_ = {words_, 0, 0, 0, 0, results_, out, *out_count, 0, 0, 0};
    uint64_t status_ = hostcall_call_bytes(context, HOSTCALL_ENVIRONMENT_RANDOM, &call_, timeout_us);
    *out_count = status_ == HOSTCALL_CALL_OK ? call_.filled : 0;
    return status_;
}

/* The host's clocks. */
#define HOSTCALL_CLOCK_WALL_NS HOSTCALL_METHOD(112, 0x931db)

HOSTCALL_FUNCTION void hostcall_clock_put_i64_(uint64_t *words, int64_t v) {
    words[0] = (uint64_t)v;
}
HOSTCALL_FUNCTION int hostcall_clock_get_i64_(const uint64_t *words, int64_t *v) {
    const uint64_t w = words[0];
    *v = (int64_t)w;
    return (uint64_t)(int64_t)*v == w;
}

/* Nanoseconds since 1970-01-01 00:00 UTC; negative before. */
HOSTCALL_FUNCTION uint64_t hostcall_clock_wall_ns(uint64_t context, int64_t *result, uint32_t timeout_us) {
    uint64_t words_[1];
    words_[0] = 0;
    uint64_t results_[1];
    uint64_t status_ = hostcall_call_words(context, HOSTCALL_CLOCK_WALL_NS, words_, 0, results_, 1, timeout_us);
    if (status_ == HOSTCALL_CALL_OK && !hostcall_clock_get_i64_(results_, result))
        status_ = HOSTCALL_CALL_MALFORMED;
    return status_;
}

#endif
