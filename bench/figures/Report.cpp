// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <utility>

namespace headrace::bench {

void fail(const std::string &message) { throw Failure(message); }

double nowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Report::Report(std::string file, Budget budget)
    : file_(std::move(file)), budget_(std::move(budget)), all_(Json::object()) {
  if (std::ifstream in(file_); in) {
    all_ = Json::parse(in, nullptr, /*allow_exceptions=*/false);
    const bool ours = all_.is_object() && (!all_.contains("parts") || all_["parts"].is_object()) &&
                      (!all_.contains("facts") || all_["facts"].is_object());
    if (!ours)
      fail(file_ + ": holds something else than figures of this program");
  }
}

void Report::part(std::string_view name, std::string_view method) {
  part_ = name;
  Json &part = all_["parts"][part_];
  const bool same = part.is_object() && part.contains("method") && part["method"] == method &&
                    part.contains("figures") && part["figures"].is_array() && part.contains("tries") &&
                    part["tries"].is_object();
  if (!same)
    part = {{"method", method}, {"figures", Json::array()}, {"tries", Json::object()}};
  std::printf("\n== %s: %s\n", part_.c_str(), std::string(method).c_str());
  write();
}

void Report::figure(std::string_view name, Json fields) {
  std::printf("%-58s", std::string(name).c_str());
  for (const auto &[key, value] : fields.items())
    if (value.is_number_float())
      std::printf("  %s %.4g", key.c_str(), value.get<double>());
    else
      std::printf("  %s %s", key.c_str(), value.dump().c_str());
  std::printf("\n");
  std::fflush(stdout);
  Json one = {{"name", name}};
  one.update(fields);
  Json &all = all_["parts"][part_]["figures"];
  const auto there = std::find_if(all.begin(), all.end(), [&](const Json &f) { return f.value("name", "") == name; });
  if (there != all.end())
    *there = std::move(one);
  else
    all.push_back(std::move(one));
  write();
}

void Report::fact(std::string_view name, Json value) {
  std::printf("%-18s %s\n", std::string(name).c_str(), value.dump().c_str());
  all_["facts"][std::string(name)] = std::move(value);
  write();
}

void Report::sameFact(std::string_view name, const Json &value) {
  const std::string key(name);
  if (all_.contains("facts") && all_["facts"].contains(key) && all_["facts"][key] != value)
    fail(file_ + ": figures of " + key + " " + all_["facts"][key].dump() + ", this is " + value.dump() +
         ": expected another file");
  fact(name, value);
}

Json Report::figuresOf(std::string_view part) const {
  const Json &parts = all_.at("parts");
  const auto it = parts.find(part);
  return it == parts.end() ? Json::array() : it->at("figures");
}

const Json *Report::find(std::string_view name) const {
  for (const Json &figure : figures())
    if (figure.value("name", "") == name)
      return &figure;
  return nullptr;
}

bool Report::settled(std::string_view name) const {
  const Json *figure = find(name);
  return figure != nullptr && !figure->contains("failed") && !figure->contains("unavailable");
}

void Report::forget(std::string_view name) {
  Json &all = all_["parts"][part_]["figures"];
  for (size_t i = all.size(); i-- > 0;)
    if (all[i].value("name", "") == name)
      all.erase(i);
}

int Report::tries(const std::string &name) const { return at("tries").value(name, 0); }

std::vector<std::string> Report::inOrder(std::vector<std::string> names) const {
  std::stable_sort(names.begin(), names.end(),
                   [&](const std::string &a, const std::string &b) { return tries(a) < tries(b); });
  return names;
}

Report::Outcome Report::attempt(const std::string &name, double seconds, const std::function<Json()> &measure) {
  if (settled(name))
    return Outcome::Settled;
  if (budget_.left() < seconds) {
    incomplete_ = true;
    return Outcome::NoTime;
  }
  // On disk before it starts, so that it is known of even where the program does not come back.
  trying_ = name;
  const int count = tries(name) + 1;
  all_["parts"][part_]["tries"][name] = count;
  write();
  try {
    Json fields = measure();
    unavailable_ = unavailable_ || fields.contains("unavailable");
    figure(name, std::move(fields));
    all_["parts"][part_]["tries"].erase(name);
    write();
    return Outcome::Measured;
  } catch (const Failure &failure) {
    failed_ = true;
    figure(name, {{"failed", failure.what()}});
  }
  if (checkDevice)
    checkDevice();
  return Outcome::Failed;
}

void Report::attempt(const std::vector<Task> &tasks) {
  std::vector<std::string> names;
  for (const Task &task : tasks)
    names.push_back(task.name);
  for (const std::string &name : inOrder(std::move(names)))
    for (const Task &task : tasks)
      if (task.name == name)
        attempt(task.name, task.seconds, task.measure);
}

double Report::number(std::string_view name, const char *field) const {
  const Json *figure = find(name);
  if (figure == nullptr || !figure->contains(field))
    fail("needs '" + std::string(name) + "', which was not measured");
  return (*figure)[field].get<double>();
}

// Figures go by how often they were tried, so where this one had been tried before, so has every other without a
// result.
void Report::lost(const std::string &why) {
  std::printf("%s\n", why.c_str());
  failed_ = true;
  incomplete_ = incomplete_ || trying_.empty() || tries(trying_) < 2;
}

int Report::exitStatus() const { return incomplete_ ? 75 : failed_ ? 1 : unavailable_ ? 77 : 0; }

void Report::write() const {
  if (file_.empty())
    return;
  const std::string beside = file_ + ".part";
  std::ofstream out(beside);
  out << all_.dump(1) << "\n";
  out.close();
  if (!out || std::rename(beside.c_str(), file_.c_str()) != 0)
    throw DeviceLost(file_ + ": cannot be written"); // no figure can be kept any more
}

std::string Report::table(const std::string &file) {
  std::ifstream in(file);
  const Json all = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object())
    fail(file + ": expected figures of this program");
  const auto cell = [](const Json &value) {
    char text[32];
    if (value.is_number_float()) {
      std::snprintf(text, sizeof(text), "%.4g", value.get<double>());
      return std::string(text);
    }
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  std::string out;
  if (all.contains("facts")) {
    out += "| device | |\n|---|---|\n";
    for (const auto &[name, value] : all["facts"].items())
      out += "| " + name + " | " + cell(value) + " |\n";
  }
  if (!all.contains("parts"))
    return out;
  for (const auto &[name, part] : all["parts"].items()) {
    out += "\n## " + name + "\n\n" + part.value("method", "") + "\n\n";
    if (!part.contains("figures") || part["figures"].empty()) {
      out += "No figure yet.\n";
      continue;
    }
    std::vector<std::string> columns;
    for (const Json &figure : part["figures"])
      for (const auto &[field, value] : figure.items())
        if (std::find(columns.begin(), columns.end(), field) == columns.end())
          columns.push_back(field);
    std::string rule;
    for (const std::string &column : columns) {
      out += "| " + column + " ";
      rule += "|---";
    }
    out += "|\n" + rule + "|\n";
    for (const Json &figure : part["figures"]) {
      for (const std::string &column : columns)
        out += "| " + (figure.contains(column) ? cell(figure[column]) : std::string()) + " ";
      out += "|\n";
    }
  }
  return out;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(q * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::clamp(rank, 1.0, static_cast<double>(values.size()))) - 1];
}
double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

} // namespace headrace::bench
