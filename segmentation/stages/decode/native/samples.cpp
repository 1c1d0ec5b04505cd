// Reads the samples of an MP4 as decoders take them: many in one call, with start codes in place of lengths.

#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace {

constexpr unsigned LENGTH = 4;  // bytes of a NAL unit's length, and of a start code

bool read_all(int file, uint8_t *to, size_t size, int64_t offset) {
    while (size) {
        const ssize_t got = pread(file, to, size, offset);
        if (got <= 0) return false;
        to += got, size -= got, offset += got;
    }
    return true;
}

// Replaces the lengths of a sample's NAL units by start codes. Sets a bit in `kinds` for each nal_unit_type, and `head`
// to the bytes before the first slice. Returns false, with nothing changed, if the lengths don't add up.
bool write_start_codes(uint8_t *data, size_t size, bool hevc, uint64_t &kinds, uint32_t &head) {
    const auto length = [=](size_t at) {
        return (size_t)data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3];
    };
    size_t at = 0;
    while (at + LENGTH < size) at += LENGTH + length(at);
    if (at != size) return false;
    bool sliced = false;
    for (at = 0; at < size;) {
        const size_t next = at + LENGTH + length(at);
        memcpy(data + at, "\0\0\0\1", LENGTH);
        if (next > at + LENGTH) {
            const int kind = hevc ? data[at + LENGTH] >> 1 & 63 : data[at + LENGTH] & 31;
            kinds |= 1ull << kind;
            if (!sliced && (hevc ? kind < 32 : kind >= 1 && kind <= 5)) sliced = true, head = at;
        }
        at = next;
    }
    if (!sliced) head = size;
    return true;
}

}  // namespace

extern "C" {

struct SampleRows {  // of each sample an entry in every array
    const int64_t *offsets;
    const uint32_t *sizes;
    const uint8_t *keys;
    uint64_t *kinds;  // filled: see `write_start_codes`. `header` counts for both
    uint32_t *heads;
};

// Reads samples into `buffer`, one behind the other, keyframes behind a `header` each. Returns how many it has read: it
// ends before one whose lengths don't add up, or that the file does not hold.
int nd_read(int file, const SampleRows *rows, int count, int hevc, const uint8_t *header, uint32_t header_size,
            uint64_t header_kinds, uint8_t *buffer) {
    for (int first = 0; first < count;) {
        uint8_t *begin = buffer + (rows->keys[first] ? header_size : 0);
        size_t size = rows->sizes[first];
        int end = first + 1;  // of the samples that one read brings: up to the next keyframe, or gap in the file
        for (; end < count && !rows->keys[end] && rows->offsets[end] == rows->offsets[first] + (int64_t)size; end++)
            size += rows->sizes[end];
        if (rows->keys[first]) memcpy(buffer, header, header_size);
        if (!read_all(file, begin, size, rows->offsets[first])) {  // a file that has become shorter
            size = rows->sizes[first], end = first + 1;
            if (!read_all(file, begin, size, rows->offsets[first])) return first;
        }
        for (uint8_t *at = begin; first < end; at += rows->sizes[first++]) {
            rows->kinds[first] = rows->heads[first] = 0;
            if (!write_start_codes(at, rows->sizes[first], hevc, rows->kinds[first], rows->heads[first])) return first;
            if (!rows->keys[first]) continue;
            rows->kinds[first] |= header_kinds;
            rows->heads[first] += header_size;
        }
        buffer = begin + size;
    }
    return count;
}
}
