// The limit of stacks and sequences: a loop that only copies the bytes.
//
// A batch is made of runs of neighbouring items (frames, or whole steps) that begin at random places. No ends of
// episodes, no padding, no other fields; the batch is written to the same memory each time.
//
//   limit_copies <items> <bytes of an item> serve    reads "<operation> <calls>" lines, answers nanoseconds a call

#include <map>

#include "limit.hpp"

namespace {

struct Shape {
    int batch, length;  // runs in a batch, items in a run
    int copies;         // 2: a run, and the run one item on, as for obs and next_obs
};

const std::map<std::string, Shape> kShapes = {
    {"stack_32", {32, 4, 2}}, {"stack_256", {256, 4, 2}}, {"sequence_32", {32, 80, 1}}};

class Limit {
  public:
    Limit(std::size_t items, std::size_t bytes) : items_(items), bytes_(bytes), random_(1) {
        store_ = allocate<char>(items * bytes);
        for (std::size_t at = 0; at < items * bytes; at += kLine) store_[at] = static_cast<char>(random_.bits());
        std::size_t most = 0;
        for (const auto& [name, shape] : kShapes)
            most = std::max<std::size_t>(most, std::size_t(shape.batch) * shape.length * shape.copies);
        batch_ = allocate<char>(most * bytes);
    }

    void copy(const Shape& shape) {
        const std::size_t run = shape.length * bytes_;
        char* to = batch_;
        for (int b = 0; b < shape.batch; ++b) {
            const char* from = store_ + random_.below(items_ - shape.length) * bytes_;
            for (int c = 0; c < shape.copies; ++c, to += run) std::memcpy(to, from + c * bytes_, run);
        }
    }

  private:
    std::size_t items_, bytes_;
    Random random_;
    char *store_, *batch_;
};

double part(Limit& limit, const std::string& operation, int calls) {
    const auto entry = kShapes.find(operation);
    if (entry == kShapes.end()) return -1;
    const auto start = Clock::now();
    for (int c = 0; c < calls; ++c) limit.copy(entry->second);
    return nanoseconds(start, Clock::now()) / calls;
}

}  // namespace

int main(int argc, char** argv) {
    const long items = argc > 1 ? std::atol(argv[1]) : 0;
    const long bytes = argc > 2 ? std::atol(argv[2]) : 0;
    if (argc != 4 || std::strcmp(argv[3], "serve") != 0 || items <= 80 || bytes < 1) {
        std::fprintf(stderr, "usage: limit_copies <items, more than 80> <bytes of an item> serve\n");
        return 2;
    }
    Limit limit(static_cast<std::size_t>(items), static_cast<std::size_t>(bytes));
    serve(limit);
    return 0;
}
