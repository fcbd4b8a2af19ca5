// SPDX-License-Identifier: Apache-2.0
#include "perf/report/csv.hpp"

#include "perf/measure/json_rows.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace tutti::perf {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string joined(const Json& list) {
  std::string text;
  for (const Json& value : list) text += (text.empty() ? "" : ";") + text_of(value);
  return text;
}

/// Names and values of all that is in `object`.
void add_fields(const Json& object, const std::string& before, Fields& fields) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) {
      add_fields(value, before + name + ".", fields);
    } else {
      fields.emplace_back(before + name, value.is_array() ? joined(value) : text_of(value));
    }
  }
}

Fields fields_of(const Row& row, Headline headline) {
  Fields fields;
  add_fields(row_of(row, headline, Detail::summaries), "", fields);
  return fields;
}

/// Of a row that has all that any has.
std::vector<std::string> all_names() {
  Measurement measurement;
  measurement.wrong = 0;
  measurement.over_tutti = 1.0;
  measurement.baseline_microseconds = 1.0;
  measurement.timing.back_to_back_of_ranks = {1.0, 1.0};
  Row row;
  row.peer = "peer";
  row.partner = 0;
  row.out_of_place = measurement;
  row.in_place = measurement;
  std::vector<std::string> names;
  for (const auto& [name, value] : fields_of(row, Headline::back_to_back)) names.push_back(name);
  return names;
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char letter : text) result += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return result + "\"";
}

std::string line_of(const std::vector<std::string>& values) {
  std::string line;
  for (const std::string& value : values) line += (&value == values.data() ? "" : ",") + quoted(value);
  return line + "\n";
}

}  // namespace

std::string to_csv(const Options& options, const Results& results) {
  const std::vector<std::string> names = all_names();
  std::string text = line_of(names);
  for (const Row& row : results.rows) {
    const Fields fields = fields_of(row, options.headline);
    std::vector<std::string> values;
    for (const std::string& name : names) {
      const auto field = std::ranges::find(fields, name, &Fields::value_type::first);
      values.push_back(field == fields.end() ? "" : field->second);
    }
    text += line_of(values);
  }
  return text;
}

}  // namespace tutti::perf
